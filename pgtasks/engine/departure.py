"""How a worker leaves: it drains, stops what is left, writes the outcomes and signs off.

The first SIGTERM, SIGINT or SIGHUP ends claiming; running tasks get the grace time;
what still runs then is stopped and released, no attempt charged; outcomes are flushed; exit 0.
A claim under way gets as long (and, without grace time, a moment); then it is cut off, and what
it took nevertheless is looked for and released.
A second signal skips the grace and exits with 130, and a third ends the process on the spot.
If the database is away, the flush is tried until the grace time is over, half a second at
least, and the exit code is 1: the leases then expire, and other workers run those tasks again.
What goes on being written at that moment gets some more seconds, after a second signal too.
The same is true of outcomes that the database refuses, which get half a second, and of those that
wait for somebody's lock, which get the grace time.
It is 1 also after a drain that was given up, and when a part of the worker ended by itself.
A worker that recycles itself (``recycling``) leaves in the same way, but waits for a database that
is away; a signal meanwhile makes an ordinary stop of it. Nothing else keeps it: it claims nothing,
so an outcome that can never be written must not hold it up for longer than the grace time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time
from collections.abc import Callable
from uuid import UUID

from pgtasks import events
from pgtasks.engine.claimer import Claimer
from pgtasks.engine.completer import Completer
from pgtasks.engine.executor import Executor
from pgtasks.engine.heartbeat import Heartbeat
from pgtasks.engine.periodic import Signal
from pgtasks.errors import DatabaseError, PgtasksError
from pgtasks.store import statements
from pgtasks.store.link import Link
from pgtasks.store.session import is_about_server

EXIT_OK, EXIT_FAILURE, EXIT_INTERRUPTED = 0, 1, 130
# The worker is to be started again at once: by itself or, with this code, by its supervisor.
EXIT_RECYCLE = 75
# After the grace time: how long stopped handlers get to end, then how long the flush gets at least.
STOP_S = 0.2
FLUSH_S = 0.6
# While outcomes go on arriving at the database, the flush gets this much more at most: a busy machine needs it,
# and a supervisor waits for longer.
GOING_ON_S = 2.5
# How long the last statement gets, at least and, while there is grace time left, at most.
LEAVE_S_MIN, LEAVE_S_MAX = 0.2, 5.0
# The same for a worker that recycles: longer than the server lets it wait for a lock.
LEAVE_S_RECYCLING = 6.0
# Within this time after the database is back, so is every part (``periodic``).
BACK_S = 5.0
# How long after its grace time a worker has ended for sure, unless the database is away.
LATE_S = 60.0
_SIGNALS_TO_DIE = 3


class StopSwitch:
    """What tells a worker to stop: signals, or the worker itself."""

    def __init__(self) -> None:
        # Set when nothing more is to be claimed.
        self.asked = Signal()
        self._own = self._forwarded = self._count = 0

        self._recycle_at: float | None = None
        # When the worker has ended, or something is wrong with it (monotonic); None while it works.
        self.due_at: float | None = None

    def recycle(self, not_before: float) -> None:
        """Make the worker leave to be started again, not earlier than that on the monotonic clock."""
        self._recycle_at = not_before
        self.asked.set()

    @property
    def recycles(self) -> bool:
        """Whether the worker is to be started again; not if a signal came."""
        return self._recycle_at is not None and not self._count

    @property
    def early(self) -> bool:
        """Whether it is too early to start again."""
        return self._recycle_at is not None and time.monotonic() < self._recycle_at

    @property
    def interrupted(self) -> bool:
        """Whether a second signal came: there is no more time."""
        return self._count > 1

    def on_signal(self, number: int, *, forwarded: bool = False) -> None:
        """Begin to stop; what a second and a third signal mean is in the module's docstring.

        One that a supervisor forwards may have reached this process as well, and then counts once.
        """
        if forwarded:
            self._forwarded += 1
        else:
            self._own += 1
        count = max(self._own, self._forwarded)
        if count == self._count:
            return
        self._count = count
        say = events.debug if forwarded else events.info  # The supervisor has said it.
        say("signal received", signal=signal.Signals(number).name, count=count)
        if count >= _SIGNALS_TO_DIE:
            os._exit(EXIT_INTERRUPTED)
        self.asked.set()


class Departure:
    """The last part of a worker's life; all of its parts are still running when it begins."""

    def __init__(
        self,
        switch: StopSwitch,
        link: Link,
        worker_id: UUID,
        *,
        claimer: Claimer,
        executor: Executor,
        completer: Completer,
        heartbeat: Heartbeat,
        grace_s: float,
    ) -> None:
        self._switch, self._link, self._worker_id, self._grace_s = switch, link, worker_id, grace_s
        self._claimer, self._executor, self._completer, self._heartbeat = claimer, executor, completer, heartbeat

    async def go(self, claiming: asyncio.Task[None], *, whole: bool) -> int:
        """Drain, stop what is left, flush, sign off; gives the exit code."""
        began = time.monotonic()
        executor, completer = self._executor, self._completer
        deadline = began + self._grace_s
        self._switch.due_at = deadline + LATE_S
        events.info("worker stopping", running=executor.running, grace_s=self._grace_s)
        self._heartbeat.drain()
        executor.accepting = False

        def quiet() -> bool:
            # A claim under way may still bring tasks; they are released as they come.
            return claiming.done() and not executor.running

        await self._wait_until(quiet, deadline)
        if not quiet():
            executor.stop_all()
            # A claim alone has had the grace time for its answer, unless there was none.
            since = time.monotonic() if executor.running else began
            await self._wait_until(quiet, since + STOP_S, heed_signals=False)
        settling = asyncio.create_task(self._settle(claiming))
        executor.abandon_all()
        completer.hurry = True
        completer.arrived.set()

        await self._flush(settling, deadline)
        settled = settling.done() and settling.result()
        if not settled:
            settling.cancel()
            events.warning("a claim was cut off unanswered", advice="tasks it took wait for their lease to end")
        # A database that did not answer until now would cost more of the second that a stop may take.
        answers = (settled and not self._is_writing()) or self._switch.recycles
        gone = answers and await self._sign_off_at_last(deadline)
        left = completer.backlog
        events.info("worker stopped", seconds=round(time.monotonic() - began, 2), unwritten=left, stuck=executor.stuck)
        if self._switch.interrupted:
            return EXIT_INTERRUPTED
        if self._switch.recycles and gone and whole:
            return EXIT_RECYCLE
        well = gone and not left and settled and whole and not self._claimer.gave_up
        return EXIT_OK if well else EXIT_FAILURE

    def _is_writing(self) -> bool:
        """Tell whether outcomes are on their way; those that the database refuses may never arrive."""
        return self._completer.backlog > self._completer.refused

    async def _flush(self, settling: asyncio.Task[bool], deadline: float) -> None:
        """Wait until the outcomes are written, for a bounded time."""
        switch, completer, began = self._switch, self._completer, time.monotonic()

        def written() -> bool:
            if not settling.done() or self._is_writing():
                return False
            # What was refused is offered again meanwhile: its obstacle may be gone.
            return not completer.backlog or time.monotonic() >= began + FLUSH_S

        await self._wait_for_writing(written, max(deadline, began + FLUSH_S))
        if switch.recycles and not written():
            await self._outlast(written)
            # Nothing, unless a signal has made an ordinary stop of it.
            await self._wait_until(lambda: switch.recycles or written(), max(deadline, time.monotonic() + FLUSH_S))
        if switch.interrupted:
            await self._wait_for_writing(written, time.monotonic() + FLUSH_S, heed_signals=False)

    async def _outlast(self, written: Callable[[], bool]) -> None:
        """Wait on, as a worker that recycles, while the database is away."""

        def over() -> bool:
            return not self._switch.recycles or written()

        while not over():
            asking = asyncio.create_task(self._link.fetch_all(statements.clock()))
            await self._wait_until(lambda: asking.done() or over(), math.inf)  # noqa: B023 - called in this round only
            asking.cancel()
            with contextlib.suppress(PgtasksError, asyncio.CancelledError):
                await asking
                break
            await self._wait_until(over, time.monotonic() + LEAVE_S_MIN)
        # It is there: what is still left after this is held up by something else.
        await self._wait_until(over, time.monotonic() + BACK_S)

    async def _sign_off_at_last(self, deadline: float) -> bool:
        """Take this worker off the list; one that recycles waits until it may, and tries while the database is away."""
        # Until then it is shown, as one that drains.
        await self._wait_until(lambda: not (self._switch.recycles and self._switch.early), math.inf)
        while self._switch.recycles:
            if await self.sign_off(time.monotonic() + LEAVE_S_RECYCLING, recycling=True):
                return True
            await self._wait_until(lambda: not self._switch.recycles, time.monotonic() + LEAVE_S_MIN)
        return await self.sign_off(min(deadline, time.monotonic() + LEAVE_S_MAX))

    async def _settle(self, claiming: asyncio.Task[None]) -> bool:
        """Cut off a claim that is still under way and give back what it took; tells whether that was possible."""
        claiming.cancel()
        await asyncio.wait({claiming}, timeout=FLUSH_S)
        with contextlib.suppress(PgtasksError):
            await self._claimer.settle()
            return claiming.done()
        return False

    async def _wait_until(self, condition: Callable[[], bool], until: float, *, heed_signals: bool = True) -> None:
        """Wait for a condition, for a bounded time, and no longer than until a second signal."""
        # The conditions concern several parts; only a stopping worker polls them.
        while not condition() and time.monotonic() < until:
            if heed_signals and self._switch.interrupted:
                return
            await asyncio.sleep(0.01)

    async def _wait_for_writing(self, written: Callable[[], bool], until: float, *, heed_signals: bool = True) -> None:
        """Wait as `_wait_until` does, and GOING_ON_S more while outcomes come in or get written each FLUSH_S."""
        completer = self._completer

        def passed() -> tuple[int, int]:
            # What a claim that was cut off took comes in once that is settled.
            return completer.written, completer.written + completer.backlog

        await self._wait_until(written, until - FLUSH_S, heed_signals=heed_signals)
        before, most = passed(), until + GOING_ON_S
        await self._wait_until(written, until, heed_signals=heed_signals)
        while not written() and passed() != before and time.monotonic() < most:
            before = passed()
            await self._wait_until(written, min(most, time.monotonic() + FLUSH_S), heed_signals=heed_signals)

    async def sign_off(self, until: float | None = None, *, recycling: bool = False) -> bool:
        """Take this worker off the list; tells whether the database was there.

        LEAVE_S_MIN is given in any case; what is left of the time until then ends with a second signal,
        or with the first one that ends ``recycling``.
        """
        # First, because a heartbeat puts a worker that is not listed back.
        self._heartbeat.stop()
        leaving = asyncio.create_task(self._link.fetch_all(statements.remove_worker(self._worker_id)))

        def over() -> bool:
            return leaving.done() or (recycling and not self._switch.recycles)

        least = time.monotonic() + LEAVE_S_MIN
        await self._wait_until(over, least if until is None else until)
        await self._wait_until(leaving.done, least, heed_signals=False)
        leaving.cancel()
        try:
            await leaving
        except DatabaseError as error:
            # A row that cannot be removed, or is locked, is found old by others and removed then.
            return not is_about_server(error)
        except (PgtasksError, asyncio.CancelledError):
            return False
        return True
