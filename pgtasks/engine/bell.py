"""The doorbell: notifications only when somebody sleeps, and no task missed while falling asleep.

``NOTIFY`` serialises the commits of all notifying transactions of a cluster, so a producer
must not notify while workers are awake and polling anyway. Whether somebody sleeps on a queue
is told by an advisory lock, one 64-bit key per queue: nothing is written, nobody waits.

Producer (the trigger ``pgtasks.tasks_inserted``), in its own transaction, after its INSERT::

    try shared lock of the queue, held until the transaction ends
      got it      nobody is asleep: say nothing
      did not     somebody is asleep: NOTIFY

Worker, on its listening session, for every queue in which it has free slots::

    AWAKE  --nothing to do for a moment (Doze)-->  try exclusive lock
      got it: ARMED        every later producer will ring, none is in flight
      did not; try shared
        did not: HELD      another worker is asleep and armed; every listener hears its bell
        got it, gave back: IN FLIGHT   a producer's transaction is open: take no bell at
                                       all, stay awake, poll
    ARMED or HELD  -->  look (claim from the head)  -->  found something: AWAKE
                                                    -->  nothing: ASLEEP
    ASLEEP  --bell, next due time, safety poll, a slot in a queue that had none-->  AWAKE:
            claim, then give the bells back and ring them

Proof that no task is missed. Let T be a producer's transaction and A the moment some worker
holds the exclusive lock. T's INSERT asks for the shared lock before A: then T either has it at
A, which is impossible (exclusive excludes shared), or T has ended: PostgreSQL makes its rows
visible before it releases its locks, so the look that follows A sees them. Or T asks after A:
it does not get the lock, and rings. What rolls back, a savepoint or all, takes its rows, its
lock and its ring with it; a savepoint that is released leaves lock and ring to its transaction.

A worker that sleeps on another's bell (HELD) has no lock of its own, and the other may run
other names or have no slot left, so it cannot rely on the other's looks either:

* The holder wakes, whatever the reason: it rings as it gives the bell back. A task that was
  inserted silently after that is either committed when the others look, or in flight when they
  try to sleep. It rings also when a producer's ring woke it. Everybody heard that one too, but
  who is quick has looked, found nothing, and gone back to sleep on this very bell, which the
  holder had not given back yet.
* The holder dies. Every sleeper tries each RECHECK_S to get what it lacks; who gets it wakes,
  looks, and rings as above. A task waits RECHECK_S at most.
* Only if the holder dies and, before any sleeper's recheck, a third worker that was awake
  takes the bell, and a task was inserted in between that this one cannot run but a sleeper
  can, does that task wait for the sleeper's safety poll.

While a producer's transaction stays open the worker polls, ever more slowly: each
IN_FLIGHT_FRACTION of the time since that was first seen, between POLL_S and POLL_S_MAX. So a
task waits at most one per cent longer than its own transaction took, and a task committed
beside somebody else's long transaction at most POLL_S_MAX.

A stranger who holds the key exclusively costs notifications nobody needs, and every worker
sleeps as HELD, woken by that bell; one who holds it shared costs polls. Never a task. A
transaction that must ring cannot be prepared for two-phase commit: PostgreSQL refuses it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from enum import Enum

from pgtasks import events
from pgtasks.engine.periodic import Signal, wait_for_any
from pgtasks.errors import DatabaseUnavailable
from pgtasks.store import ringing
from pgtasks.store.listening import Listening
from pgtasks.store.ringing import Bell as Taken
from pgtasks.store.route import Route

DOZE_S, DOZE_S_RESTLESS = 0.05, 0.25
RECHECK_S = 0.25
POLL_S = 0.01
# A restless worker: this many sleeps were cut short within CUT_SHORT_S.
CUT_SHORT_MAX = 5
CUT_SHORT_S = 5.0
POLL_S_MAX = 0.1
IN_FLIGHT_FRACTION = 0.01
# How often a worker looks that cannot hear: behind a transaction pooler, or without a session.
DEAF_POLL_S = 0.1
HEARING_TEST_S = 3.0
DEAF_RETRY_S = 60.0
CHANNEL = "pgtasks"
CANCEL_CHANNEL = "pgtasks_cancel"
SCHEDULES_CHANNEL = "pgtasks_schedules"
_FOREVER_S = 3600.0


class Sleep(Enum):
    """How well a worker could go to sleep."""

    ARMED = "armed"
    HELD = "held"
    IN_FLIGHT = "in flight"
    DEAF = "deaf"


class Doze:
    """How long a worker that finds nothing polls before it falls asleep.

    To fall asleep and wake up costs as much as some six polls, and while one worker sleeps every
    producer rings. So it pays where sleeps last. Where they keep being cut short (tasks every few
    milliseconds, or a bell that rings for what many others take) the worker polls for longer:
    otherwise a crowd of idle workers, of which one is always asleep, would have all producers
    notify, and these would be slowed down to a rate at which the workers keep falling asleep.
    """

    def __init__(self) -> None:
        self._cut_short: deque[float] = deque(maxlen=CUT_SHORT_MAX)

    def slept(self, began: float, ended: float) -> None:
        """Note a sleep, by the monotonic clock."""
        if ended - began < POLL_S:
            self._cut_short.append(ended)

    def seconds(self, now: float) -> float:
        """Say how long nothing must have been found for the worker to fall asleep at ``now``."""
        restless = len(self._cut_short) == CUT_SHORT_MAX and now - self._cut_short[0] < CUT_SHORT_S
        return DOZE_S_RESTLESS if restless else DOZE_S


class Bell:
    """This worker's half of the doorbell."""

    def __init__(
        self,
        dsn: str,
        queues: Collection[str],
        *,
        worker: str,
        wanted: bool,
        notify: Callable[[str], Awaitable[object]],
        on_cancel: Callable[[int], None],
        on_schedules: Callable[[], None],
        route: Route | None = None,
    ) -> None:
        """``notify`` sends a notification on a channel from another session, to test the hearing.

        ``route`` is shared with the worker's other connections.
        """
        self._queues, self._wanted, self._notify, self._on_cancel = frozenset(queues), wanted, notify, on_cancel
        self._on_schedules = on_schedules
        self._sleeping_on: list[str] = []
        self._taken: set[str] = set()
        self._in_flight_since: float | None = None
        self._deaf_said = self._was_lost = False
        self.rung = Signal()
        self.lost = Signal()
        self._heard_test = Signal()
        self._test_channel = f"pgtasks_test_{worker[-32:]}"
        self._session = Listening(
            dsn,
            (CHANNEL, CANCEL_CHANNEL, SCHEDULES_CHANNEL, self._test_channel),
            self._heard,
            self._session_lost,
            worker=worker,
            route=route,
        )

    @property
    def hears(self) -> bool:
        """Tell whether notifications reach this worker at the moment, as a test has shown."""
        return self._heard_test.is_set() and self._session.connected

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
        elif channel == SCHEDULES_CHANNEL:
            self._on_schedules()
        else:
            self._heard_test.set()

    def _session_lost(self) -> None:
        events.info("listening session lost", bells=len(self._taken))
        self._was_lost = True
        self._taken.clear()
        self._heard_test.clear()
        self.lost.set()
        self.rung.set()

    async def keep_session(self) -> float:
        """Do one round of the listener: connect when the session is lost, then test the hearing."""
        if not self._wanted:
            return _FOREVER_S
        if not self._session.connected:
            self._heard_test.clear()
            await self._session.open()
            self.lost.clear()
        if not self.hears:
            await self._test()
        return _FOREVER_S if self.hears else DEAF_RETRY_S

    async def _test(self) -> None:
        """Find out whether a notification from another session arrives; close the session if not."""
        await self._notify(self._test_channel)
        await wait_for_any(HEARING_TEST_S, self._heard_test, self.lost)
        if self.lost.is_set():
            raise DatabaseUnavailable("the listening connection was lost")
        if self.hears:
            self._deaf_said = False
            say = events.info if self._was_lost else events.debug
            say("listening again" if self._was_lost else "listening", queues=sorted(self._queues))
            self._was_lost = False
            return
        await self._session.close()
        if not self._deaf_said:
            self._deaf_said = True
            events.warning(
                "notifications do not arrive",
                advice="the DSN seems to lead through a transaction pooler; use --pooler transaction, and give a "
                "direct one in --listen-dsn; polling now",
            )

    async def fall_asleep(self, queues: Collection[str]) -> Sleep:
        """Try to take the bells of these queues."""
        self._sleeping_on = list(queues)
        # What rang before the bell is taken is found by the look that follows.
        self.rung.clear()
        try:
            bells = await self._take()
            if all(bell.armed or bell.held for bell in bells) and self.hears:
                self._in_flight_since = None
                return Sleep.HELD if any(bell.held for bell in bells) else Sleep.ARMED
        except DatabaseUnavailable:
            return Sleep.DEAF
        if not self.hears:
            return Sleep.DEAF
        if self._in_flight_since is None:
            self._in_flight_since = time.monotonic()
        return Sleep.IN_FLIGHT

    async def recheck(self) -> bool:
        """Try to take the bells that others held; tells whether this sleeper must wake and look."""
        try:
            return not all(bell.held for bell in await self._take())
        except DatabaseUnavailable:
            return True

    async def _take(self) -> list[Taken]:
        if not self.hears:
            raise DatabaseUnavailable("notifications do not arrive")
        missing = [queue for queue in self._sleeping_on if queue not in self._taken]
        bells = await self._session.fetch_all(ringing.arm_bells(missing)) if missing else []
        self._taken.update(bell.queue for bell in bells if bell.armed)
        return bells

    def poll_s(self, found_at: float) -> float:
        """Say how long to wait before the next look while awake; ``found_at`` is when one last found a task."""
        if not self.hears or self._in_flight_since is None:
            return DEAF_POLL_S
        seen_s = time.monotonic() - max(self._in_flight_since, found_at)
        return min(POLL_S_MAX, max(POLL_S, seen_s * IN_FLIGHT_FRACTION))

    async def wake_up(self) -> None:
        """Give the bells back, and ring them for those who relied on them."""
        try:
            if self._taken:
                taken = sorted(self._taken)
                self._taken.clear()
                await self._session.fetch_all(ringing.release_bells(taken))
        except DatabaseUnavailable:
            # The session is gone, and with it the bells.
            return

    async def close(self) -> None:
        """End the listening session, and with it every bell it holds."""
        await self._session.close()
