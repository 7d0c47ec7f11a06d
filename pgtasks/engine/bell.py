"""The doorbell: notifications only when somebody sleeps, and no task missed while falling asleep.

``NOTIFY`` serialises the commits of all notifying transactions of a cluster, so a producer
must not notify while workers are awake and polling anyway. Whether somebody sleeps on a queue
is told by an advisory lock, one 64-bit key per queue: nothing is written, nobody waits.

Producer (the trigger ``pgtasks.tasks_inserted``), in its own transaction, after its INSERT::

    try shared lock of the queue, held until the transaction ends
      got it      nobody is asleep: say nothing
      did not     somebody is asleep: NOTIFY

Worker, on its listening session::

    AWAKE  --nothing to do for DOZE_S-->  try exclusive lock
      got it: ARMED        every later producer will ring, none is in flight
      did not; try shared
        did not: HELD      another worker is asleep and armed; every listener hears its bell
        got it, gave back: IN FLIGHT   a producer's transaction is open: stay awake, poll
    ARMED or HELD  -->  claim once from the head  -->  found something: AWAKE
                                                  -->  nothing: ASLEEP
    ASLEEP  --bell, next due time, safety poll-->  release, AWAKE

Proof that no task is missed. Let T be a producer's transaction and A the moment some worker
holds the exclusive lock. T's INSERT asks for the shared lock before A: then T either has it at
A, which is impossible (exclusive excludes shared), or T has ended: its rows are visible to the
claim that follows A. Or T asks after A: it does not get the lock, and rings. A rollback or a
savepoint only makes the bell ring for nothing or keeps the shared lock until T ends; both err
towards being awake.

A worker that sleeps on another's bell (HELD) has no lock of its own. When the holder wakes for
reasons of its own, or dies, the bell is gone; so such a sleeper tries again to take it every
RECHECK_S, and claims from the head when it got it. That is the one case in which a task can
wait longer than the short poll: RECHECK_S at most.

While a producer's transaction stays open the worker polls, ever more slowly: every
IN_FLIGHT_FRACTION of the time it has been open, so a task waits at most one per cent longer
than its own transaction took.

A stranger who holds the key exclusively costs notifications nobody needs (and this worker
sleeps as HELD, found by the safety poll at the latest); one who holds it shared costs polls.
Never a task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum

from pgtasks import events
from pgtasks.store import statements
from pgtasks.store.listening import Listening

DOZE_S = 0.25
RECHECK_S = 0.25
POLL_S = 0.01
POLL_S_MAX = 0.25
IN_FLIGHT_FRACTION = 0.01
# How often a worker looks that cannot hear: behind a transaction pooler, or without a session.
DEAF_POLL_S = 0.1
CHANNEL = "pgtasks"
CANCEL_CHANNEL = "pgtasks_cancel"


class Sleep(Enum):
    """How well a worker could go to sleep."""

    ARMED = "armed"
    HELD = "held"
    IN_FLIGHT = "in flight"
    DEAF = "deaf"


class Bell:
    """This worker's half of the doorbell."""

    def __init__(
        self, dsn: str, queues: list[str], *, worker: str, hears: bool, on_cancel: Callable[[int], None]
    ) -> None:
        self._queues, self._on_cancel = queues, on_cancel
        self._wanted = hears
        self._taken: set[str] = set()
        self._in_flight_since: float | None = None
        self.rung = asyncio.Event()
        self.lost = asyncio.Event()
        self.lost.set()
        self._heard_test = asyncio.Event()
        self._test_channel = f"pgtasks_test_{worker[-32:]}"
        self._session = Listening(
            dsn, (CHANNEL, CANCEL_CHANNEL, self._test_channel), self._heard, self._session_lost, worker=worker
        )

    @property
    def hears(self) -> bool:
        """Tell whether notifications reach this worker at the moment."""
        return self._wanted and self._session.connected

    @property
    def armed(self) -> int:
        """How many bells this worker holds."""
        return len(self._taken)

    def _heard(self, channel: str, payload: str) -> None:
        if channel == CHANNEL:
            if payload in self._queues:
                self.rung.set()
        elif channel == CANCEL_CHANNEL:
            if payload.isascii() and payload.isdigit():
                self._on_cancel(int(payload))
        else:
            self._heard_test.set()

    def _session_lost(self) -> None:
        self._taken.clear()
        self.lost.set()
        self.rung.set()

    async def keep_session(self) -> float:
        """Do one round of the listener: connect when the session is lost, then look once at the queues."""
        if not self._wanted:
            return 3600.0
        if not self._session.connected:
            await self._session.open()
            self._taken.clear()
            self.lost.clear()
            events.debug("listening", queues=self._queues)
            # What was notified while nobody listened is found by looking.
            self.rung.set()
        return 3600.0

    async def test(self, notify: Callable[[str], Awaitable[object]]) -> bool:
        """Tell whether a notification from another session arrives here; deaf for good if not."""
        self._heard_test.clear()
        await notify(self._test_channel)
        try:
            async with asyncio.timeout(3.0):
                await self._heard_test.wait()
        except TimeoutError:
            self._wanted = False
            await self._session.close()
            events.warning(
                "notifications do not arrive",
                advice="the DSN seems to lead through a transaction pooler; use --pooler transaction, polling now",
            )
        return self._wanted

    async def fall_asleep(self) -> Sleep:
        """Try to take the bells of all queues; raises DatabaseUnavailable when the session is lost."""
        if not self.hears:
            return Sleep.DEAF
        missing = [queue for queue in self._queues if queue not in self._taken]
        if not self._taken:
            # What rang before the bell is taken is found by the claim that follows.
            self.rung.clear()
        bells = await self._session.fetch_all(statements.arm_bells(missing)) if missing else []
        self._taken.update(bell.queue for bell in bells if bell.armed)
        if all(bell.armed or bell.held for bell in bells):
            self._in_flight_since = None
            return Sleep.ARMED if len(self._taken) == len(self._queues) else Sleep.HELD
        await self.wake_up()
        if self._in_flight_since is None:
            self._in_flight_since = time.monotonic()
        return Sleep.IN_FLIGHT

    def poll_s(self, state: Sleep) -> float:
        """Say how long to wait before the next look while awake."""
        if state is Sleep.DEAF:
            return DEAF_POLL_S
        open_s = 0.0 if self._in_flight_since is None else time.monotonic() - self._in_flight_since
        return min(POLL_S_MAX, max(POLL_S, open_s * IN_FLIGHT_FRACTION))

    async def wake_up(self) -> None:
        """Give the bells back."""
        if self._taken:
            self._taken.clear()
            await self._session.fetch_all(statements.release_bells())

    async def close(self) -> None:
        """End the listening session, and with it every bell it holds."""
        await self._session.close()
