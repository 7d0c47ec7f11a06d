"""Claims: tasks taken as slots get free, from the cursors, polling while busy, asleep while idle."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from datetime import datetime, timedelta
from uuid import UUID

from pgtasks.engine.bell import DOZE_S, POLL_S, RECHECK_S, Bell, Sleep
from pgtasks.engine.completer import Completer
from pgtasks.engine.cursor import Cursor
from pgtasks.engine.executor import Executor
from pgtasks.engine.leases import Leases
from pgtasks.engine.periodic import wait_for_any
from pgtasks.engine.slots import Slots
from pgtasks.errors import DatabaseUnavailable
from pgtasks.model import Claimed
from pgtasks.settings import WorkerSettings
from pgtasks.store import statements
from pgtasks.store.link import Link

BATCH_MAX = 500
# Waiting this long for more slots turns many small claims into few.
GATHER_S = 0.002
GATHER_SLOTS = 50
CLOCK_READ_S = 30.0
# With this many outcomes unwritten per slot, the database is behind: claim no more for now.
BACKLOG_PER_SLOT = 4


class Claimer:
    """Takes tasks from this worker's queues."""

    def __init__(
        self,
        link: Link,
        bell: Bell,
        *,
        settings: WorkerSettings,
        worker_id: UUID,
        names: list[str],
        slots: Slots,
        leases: Leases,
        executor: Executor,
        completer: Completer,
        stop: asyncio.Event,
        rng: random.Random,
    ) -> None:
        self._link, self._bell, self._settings = link, bell, settings
        self._worker_id, self._names = worker_id, names
        self._slots, self._leases, self._executor, self._completer = slots, leases, executor, completer
        self._stop, self._rng = stop, rng
        self._order = deque(slots.queues)
        self._cursors = {queue: Cursor() for queue in slots.queues}
        self._found_at = time.monotonic()
        self._claim_s = 0.0
        self._clock: tuple[datetime, float] | None = None
        self._gather_slots = min(GATHER_SLOTS, max(1, slots.total // 4))
        self.progress_at = time.monotonic()
        self.rescans = 0

    async def round(self) -> float:
        """Do one round: claim what fits; else wait for slots, poll, or sleep until the bell."""
        self.progress_at = time.monotonic()
        if await self._wait_for_slots():
            return 0.0
        found, full = await self._claim()
        if found:
            self._found_at = time.monotonic()
            return 0.0 if full or not self._slots.any_free() else POLL_S
        if self._settings.drain and await self._drained():
            self._stop.set()
            return 0.0
        if self._settings.drain or time.monotonic() - self._found_at < DOZE_S:
            return POLL_S
        return await self._sleep()

    async def _wait_for_slots(self) -> bool:
        """Wait while nothing could be started; tells whether it waited."""
        freed = self._executor.slot_freed
        freed.clear()
        congested = self._completer.backlog > BACKLOG_PER_SLOT * self._slots.total
        if self._slots.any_free() and not congested:
            return False
        await wait_for_any(POLL_S if congested else 1.0, freed, self._stop)
        if self._slots.free() < self._gather_slots:
            await asyncio.sleep(GATHER_S)
        return True

    async def _claim(self, *, from_head: bool = False) -> tuple[int, bool]:
        """Claim from every queue once; gives how many tasks, and whether some claim was full."""
        found, full = 0, False
        # Another queue comes first each time, so that none starves the others of slots.
        self._order.rotate(-1)
        for queue in list(self._order):
            limit = min(BATCH_MAX, self._slots.free_in(queue))
            if limit <= 0 or self._stop.is_set():
                continue
            count = await self._claim_in(queue, limit, from_head=from_head)
            found += count
            full = full or count == limit
        return found, full

    async def _claim_in(self, queue: str, limit: int, *, from_head: bool) -> int:
        """Claim from one queue: from the cursor, from the head when that is due, or both."""
        cursor, count = self._cursors[queue], 0
        if not from_head and not cursor.rescan_due(time.monotonic(), short=False):
            count = await self._claim_from_cursor(queue, limit)
            if count == limit or not cursor.rescan_due(time.monotonic(), short=True):
                return count
        return count + await self._rescan(queue, limit - count)

    async def _claim_from_cursor(self, queue: str, limit: int) -> int:
        lanes = self._cursors[queue].lanes()
        if not lanes:
            return 0
        sent_at = time.monotonic()
        rows = await self._link.fetch_all(
            statements.claim(
                queue,
                lanes,
                limit=limit,
                names=self._names,
                worker_id=self._worker_id,
                lease_s=self._settings.lease_s,
            )
        )
        took_s = time.monotonic() - sent_at
        self._claim_s += (took_s - self._claim_s) / 16
        self._start(queue, rows, sent_at)
        return len(rows)

    async def _rescan(self, queue: str, limit: int) -> int:
        began = await self._database_now()
        sent_at = time.monotonic()
        rows = await self._link.fetch_all(
            statements.rescan(
                queue, limit=limit, names=self._names, worker_id=self._worker_id, lease_s=self._settings.lease_s
            )
        )
        took_s = time.monotonic() - sent_at
        cursor = self._cursors[queue]
        # What a rescan costs beyond an ordinary claim is the walk over dead and foreign rows.
        cursor.rescanned(time.monotonic(), max(0.0, took_s - self._claim_s))
        self.rescans += 1
        self._start(queue, rows, sent_at)
        if len(rows) < limit:
            cursor.clean_at(began)
        return len(rows)

    async def _database_now(self) -> datetime:
        """Give the database's time, rounded down: read now and then, extrapolated in between."""
        if self._clock is None or time.monotonic() - self._clock[1] > CLOCK_READ_S:
            read = await self._link.fetch_one(statements.clock())
            if read is None:
                raise DatabaseUnavailable("the database's clock could not be read")
            self._clock = (read, time.monotonic())
        return self._clock[0] + timedelta(seconds=time.monotonic() - self._clock[1])

    def _start(self, queue: str, rows: list[Claimed], sent_at: float) -> None:
        if not rows:
            return
        self._leases.add(rows[0].lease_id, len(rows), sent_at)
        self._cursors[queue].passed(rows)
        self._executor.start(queue, rows)

    async def _drained(self) -> bool:
        """Tell whether nothing is left to do: nothing running or unwritten, nothing due anywhere."""
        if self._executor.running or self._completer.backlog:
            return False
        found, _ = await self._claim(from_head=True)
        return found == 0

    async def _sleep(self) -> float:
        """Fall asleep if the bells allow it; returns after waking up, or at once, awake."""
        now = time.monotonic()
        if not all(cursor.rescan_allowed(now) for cursor in self._cursors.values()):
            return POLL_S
        state = await self._bell.fall_asleep()
        if state in {Sleep.IN_FLIGHT, Sleep.DEAF}:
            return self._bell.poll_s(state)
        # Before the claim, not after it: a task that falls due in between is claimed or slept to.
        wake_at = await self._next_due()
        found, _ = await self._claim(from_head=True)
        if found:
            self._found_at = time.monotonic()
        elif not self._stop.is_set():
            await self._doze_until_bell(state, wake_at)
        release = asyncio.ensure_future(self._bell.wake_up())
        try:
            # The claim goes first: the bell may be held a moment longer, a task need not wait.
            if not found and self._slots.any_free():
                found, _ = await self._claim()
                if found:
                    self._found_at = time.monotonic()
        finally:
            await release
        return 0.0 if found else POLL_S

    async def _next_due(self) -> float:
        """Say when (monotonic) to look again: at the next due time, or at the safety poll."""
        due_in_s = await self._link.fetch_one(statements.due_in(self._slots.queues))
        sleep_s = self._settings.safety_poll_s * (0.75 + self._rng.random() / 4)
        return time.monotonic() + (sleep_s if due_in_s is None else min(sleep_s, max(0.001, due_in_s)))

    async def _doze_until_bell(self, state: Sleep, until: float) -> None:
        while (left_s := until - time.monotonic()) > 0 and not self._stop.is_set() and not self._bell.rung.is_set():
            self.progress_at = time.monotonic()
            if state is Sleep.ARMED:
                await wait_for_any(left_s, self._bell.rung, self._stop)
                continue
            await wait_for_any(min(left_s, RECHECK_S), self._bell.rung, self._stop)
            before = self._bell.armed
            state = await self._bell.fall_asleep()
            if self._bell.armed > before or state not in {Sleep.ARMED, Sleep.HELD}:
                # The sleeper whose bell we relied on is gone; something may have come meanwhile.
                return

    def database_lost(self) -> None:
        """Forget what was read from a server that may have been another one."""
        self._clock = None
