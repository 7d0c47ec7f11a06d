"""Heartbeats: leases renewed from a thread of its own, and when sweeping is safe.

The thread has its own event loop and its own connection, so that neither a blocked handler nor
a slow claim stops it. Each beat is one statement for the whole worker. Its answer goes to the
engine's loop. A beat that is not answered within its deadline is given up and sent again on a
new connection, early enough to save the leases when only the connection was dead.

The thread vouches for the engine's loop, which keeps time limits and writes outcomes: a loop
that answers nothing for a whole lease gets no more beats, so that others take its tasks over.
(Handlers run on another loop and in threads; they may block those for as long as they like.)

When every lease looks expired
------------------------------
After a stall of the whole database (a crash and restart, a lock, a frozen host) the leases of
all workers have expired although their holders live. Whoever sweeps first would take them.
Two rules, both on the database's clock, prevent it. With i for the beat interval, a lease lasts
3 i and was renewed at most i before the stall, so it has 2 i left:

1. A sweep says until when it may run: 1.5 i after this worker's own last beat. A sweep that was
   sent before or in the stall and is executed after it finds itself too late and takes nothing.
2. When two beats in a row lie more than 1.5 i apart, this worker was cut off or the database
   stalled. It then does not sweep for another 0.75 i, in which the other workers, whose beats
   were waiting or are tried again every 0.25 i at least, renew. (A shorter gap is harmless:
   every lease has 0.5 i left after it.) A worker that has just started does the same.

This holds for workers with the same lease. With different ones the longer interval notices
short stalls late; then a live task may be swept, which costs an attempt and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from pgtasks import events
from pgtasks.engine.executor import Executor
from pgtasks.engine.leases import Leases
from pgtasks.engine.periodic import Signal, repeat
from pgtasks.errors import DatabaseError, DatabaseUnavailable, SchemaError
from pgtasks.model import WorkerInfo
from pgtasks.store import statements
from pgtasks.store.link import Link
from pgtasks.store.statements import Beat

BEATS_PER_LEASE = 3
# A beat needs this long on a busy machine, whatever the lease.
BEAT_DEADLINE_S_MIN = 1.0
STOP_S = 0.5
# How long the engine's loop may be silent, at least; and how long the thread may take to start.
ENGINE_SILENT_S_MIN = 3.0
START_S = 10.0


def beat_deadline_s(lease_s: float) -> float:
    """Give the seconds after which a beat without an answer is sent again on a new connection."""
    return max(BEAT_DEADLINE_S_MIN, lease_s / BEATS_PER_LEASE)


class SweepWindow:
    """Says until when a sweep may run, by the database's clock (see the module)."""

    def __init__(self, interval_s: float) -> None:
        self._interval = timedelta(seconds=interval_s)
        self._last: datetime | None = None
        self._closed_until: datetime | None = None

    def beat(self, now: datetime) -> None:
        """Note a beat that the database took at ``now``."""
        if self._last is None or now - self._last > 1.5 * self._interval or now < self._last:
            self._closed_until = now + 0.75 * self._interval
        self._last = now

    def fresh_until(self) -> datetime | None:
        """Give the end of the window, None while it is closed."""
        if self._last is None or self._closed_until is None or self._last < self._closed_until:
            return None
        return self._last + 1.5 * self._interval


class Heartbeat:
    """The heartbeat's thread."""

    def __init__(
        self,
        link: Link,
        worker: WorkerInfo,
        leases: Leases,
        executor: Executor,
        rng: random.Random,
    ) -> None:
        self._link, self._worker, self._leases, self._executor, self._rng = link, worker, leases, executor, rng
        self.interval_s = worker.lease_s / BEATS_PER_LEASE
        self.window = SweepWindow(self.interval_s)
        self._draining = False
        self.beats = 0
        # When the last beat was sent (monotonic) that was answered.
        self.beat_at = time.monotonic()
        # When one last failed because of the database: the thread is alive, and waits for it.
        self.refused_at = -math.inf
        self._engine_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="pgtasks-heartbeat", daemon=True)
        self._started = threading.Event()
        self._ended = asyncio.Event()
        # When the oldest ping was sent that the engine's loop has not answered.
        self._pinged_at: float | None = None
        self._silence_said = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beating: asyncio.Task[None] | None = None
        self._wake: Signal | None = None

    def start(self) -> None:
        """Start beating; raises RuntimeError when the thread does not get to it."""
        self._thread.start()
        if not self._started.wait(START_S) or self._beating is None:
            raise RuntimeError("the heartbeat's thread did not start")

    async def until_ended(self) -> None:
        """Wait until the thread beats no more, for whatever reason."""
        await self._ended.wait()

    def drain(self) -> None:
        """Say from now on that the worker takes nothing more, for the first time at once."""
        self._draining = True
        if self._loop is not None and self._wake is not None:
            with contextlib.suppress(RuntimeError):  # Its loop has ended already.
                self._loop.call_soon_threadsafe(self._wake.set)

    def stop(self) -> None:
        """Beat no more; a beat under way is given up."""
        if self._loop is None or self._beating is None:
            return
        with contextlib.suppress(RuntimeError):  # Its loop has ended already.
            self._loop.call_soon_threadsafe(self._beating.cancel)
        self._thread.join(timeout=STOP_S)

    def _run(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(self._beat_until_cancelled())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the worker must learn that the thread has ended
            events.LOGGER.error("heartbeat ended", exc_info=error)
        finally:
            self._started.set()
            self._call(self._ended.set)

    async def _beat_until_cancelled(self) -> None:
        self._loop, self._beating = asyncio.get_running_loop(), asyncio.current_task()
        self._wake = Signal()
        self._started.set()
        delay_s_max = self.interval_s / 4
        try:
            await repeat(
                "heartbeat", self._beat, stop=Signal(), rng=self._rng, wake=self._wake, delay_s_max=delay_s_max
            )
        finally:
            await self._link.close()

    async def _beat(self) -> float:
        """Do one round: renew, and hand the answer to the engine's loop."""
        if not self._engine_answers():
            return self.interval_s / 4
        lease_ids, running = self._leases.ids(), self._executor.held()
        sent_at = time.monotonic()
        self._leases.asked(sent_at)
        beat = await self._send(lease_ids, running)
        self.beat_at = sent_at
        self._call(lambda: self._answered(lease_ids, running, sent_at, beat))
        if not beat.registered:
            await self._link.fetch_all(statements.register(self._worker))
        if beat.locked:
            return self.interval_s / 4
        return self.interval_s * (0.9 + 0.1 * self._rng.random()) - (time.monotonic() - sent_at)

    async def _send(self, lease_ids: list[int], running: list[tuple[int, int]]) -> Beat:
        try:
            beat = await self._link.fetch_one(
                statements.beat(
                    self._worker.id,
                    lease_s=self._worker.lease_s,
                    lease_ids=lease_ids,
                    running=running,
                    busy=self._executor.running + self._executor.stuck,
                    stuck=self._executor.stuck,
                    draining=self._draining,
                )
            )
        except (DatabaseError, SchemaError):
            self.refused_at = time.monotonic()
            raise
        if beat is None:
            raise DatabaseUnavailable("a heartbeat came back without an answer")
        return beat

    def _engine_answers(self) -> bool:
        """Ping the engine's loop; tells whether it answered the pings before in time."""
        now = time.monotonic()
        if self._pinged_at is None:
            self._pinged_at, self._silence_said = now, False
            self._call(self._pong)
        silent_s = now - (self._pinged_at or now)
        if silent_s <= max(self._worker.lease_s, ENGINE_SILENT_S_MIN):
            return True
        if not self._silence_said:
            self._silence_said = True
            events.error("no heartbeat for an engine that stands still", silent_s=round(silent_s, 1))
        return False

    def _pong(self) -> None:
        self._pinged_at = None

    def _call(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # The engine's loop has ended.
            self._engine_loop.call_soon_threadsafe(work)

    def _answered(self, asked: list[int], running: list[tuple[int, int]], sent_at: float, beat: Beat) -> None:
        """Take a beat's answer, on the engine's loop."""
        self.beats += 1
        self.window.beat(beat.now)
        gone = self._leases.renewed(asked, beat.kept, sent_at, locked=beat.locked)
        if gone:
            self._executor.lose(gone, "it expired and was swept")
        if beat.lost:
            self._executor.lose_tasks({running[position - 1] for position in beat.lost}, "it was taken from its lease")
        for task_id in beat.cancelled:
            self._executor.cancel(task_id)
