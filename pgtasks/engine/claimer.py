"""Claims: tasks taken as slots get free, from the cursors, polling while busy, asleep while idle."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from datetime import datetime, timedelta
from uuid import UUID

from pgtasks.engine import drain
from pgtasks.engine.batches import BatchLimit
from pgtasks.engine.bell import DOZE_S, POLL_S, RECHECK_S, Bell, Sleep
from pgtasks.engine.completer import Completer
from pgtasks.engine.cursor import Cursor, claim_order
from pgtasks.engine.executor import Executor
from pgtasks.engine.leases import Leases
from pgtasks.engine.periodic import wait_for_any
from pgtasks.engine.slots import Slots
from pgtasks.engine.unanswered import Unanswered
from pgtasks.errors import DatabaseError, DatabaseUnavailable
from pgtasks.model import Claimed
from pgtasks.settings import WorkerSettings
from pgtasks.store import looking, statements
from pgtasks.store.link import Link
from pgtasks.store.session import Statement, is_about_time
from pgtasks.store.statements import Lane

# Waiting this long for more slots turns many small claims into few.
GATHER_S = 0.002
GATHER_SLOTS = 50
CLOCK_READ_S = 30.0
# With this many outcomes unwritten per slot, the database is behind: claim no more for now.
BACKLOG_PER_SLOT = 4
# Sleeps end this much after the database says that a task is due, not just before it.
DUE_MARGIN_S = 0.001


class Claimer:
    """Takes tasks from this worker's queues."""

    def __init__(  # noqa: PLR0913 - the claimer is where the parts of a worker meet
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
        self._batches = {queue: BatchLimit() for queue in slots.queues}
        self._unanswered = Unanswered(link, worker_id)
        self._found_at = time.monotonic()
        self._claim_s = 0.0
        self._clock: tuple[datetime, float] | None = None
        self._gather_slots = min(GATHER_SLOTS, max(1, slots.total // 4))
        self.progress_at = time.monotonic()
        self.claims = 0
        # A drain ended although there was work that this worker should have done.
        self.gave_up = False
        self.rescans = 0

    async def round(self) -> float:
        """Do one round: claim what fits; else wait for slots, poll, or sleep until the bell."""
        self.progress_at = time.monotonic()
        self._executor.slot_freed.clear()
        await self._unanswered.give_back()
        if await self._wait_for_slots():
            return 0.0
        found, full = await self._claim()
        if found:
            return 0.0 if full or not self._slots.any_free() else await self._pause()
        if self._settings.drain and await self._drained():
            await self._end_drain()
            return 0.0
        if self._settings.drain or time.monotonic() - self._found_at < DOZE_S:
            return await self._pause()
        return await self._sleep()

    async def settle(self) -> None:
        """Give back what a claim took that was cut off as this worker ended; raises DatabaseUnavailable."""
        await self._unanswered.settle()

    async def _wait_for_slots(self) -> bool:
        """Wait while nothing could be started, or kept; tells whether it waited."""
        held_up = self._completer.backlog > BACKLOG_PER_SLOT * self._slots.total or self._leases.unanswered()
        free = self._slots.any_free()
        if free and not held_up:
            return False
        # Nothing runs and no slot is free: handlers that ignored their stop have them all.
        if self._settings.drain and not (free or self._executor.running or self._is_writing()):
            await self._end_drain()
            return True
        await wait_for_any(POLL_S if held_up else 1.0, self._executor.slot_freed, self._stop)
        if self._slots.free() < self._gather_slots:
            await asyncio.sleep(GATHER_S)
        return True

    def _is_writing(self) -> bool:
        """Tell whether outcomes are on their way; those of rows that cannot be moved may never arrive."""
        return self._completer.backlog > self._completer.refused

    async def _pause(self) -> float:
        """Wait for the next poll; a queue whose slots are all taken is served as soon as one is free."""
        if not self._slots.full_queues():
            return POLL_S
        await wait_for_any(POLL_S, self._executor.slot_freed, self._stop)
        await asyncio.sleep(GATHER_S)
        return 0.0

    async def _claim(self, *, from_head: bool = False) -> tuple[int, bool]:
        """Claim from every queue once; gives how many tasks, and whether some claim was full."""
        found, full = 0, False
        # Another queue comes first each time, so that none starves the others of slots.
        self._order.rotate(-1)
        for queue in list(self._order):
            limit = self._limit_in(queue)
            if limit <= 0:
                continue
            count = await self._claim_in(queue, limit, from_head=from_head)
            found += count
            full = full or count == limit
        return found, full

    def _limit_in(self, queue: str) -> int:
        return 0 if self._stop.is_set() else min(self._batches[queue].tasks, self._slots.free_in(queue))

    async def _claim_in(self, queue: str, limit: int, *, from_head: bool) -> int:
        """Claim from one queue: from the cursor, from the head when that is due, or both."""
        cursor, count = self._cursors[queue], 0
        if not from_head and not (cursor.busy and cursor.rescan_due(time.monotonic())):
            count = await self._claim_from_cursor(queue, limit)
            if count == limit or not cursor.rescan_due(time.monotonic()):
                return count
        return count + await self._rescan(queue, limit - count)

    async def _claim_from_cursor(self, queue: str, limit: int) -> int:
        cursor = self._cursors[queue]
        began = time.monotonic()
        near = cursor.near_due(began)
        if near:
            cursor.add_lanes(await self._link.fetch_all(self._new_lanes(queue)))
        lanes = cursor.near_lanes() if near else cursor.lanes()
        if not lanes:
            return 0
        statement = statements.claim(
            queue,
            lanes,
            limit=limit,
            names=self._names,
            worker_id=self._worker_id,
            lease_s=self._settings.lease_s,
        )
        rows, took_s = await self._send(queue, limit, statement)
        self.claims += 1
        full = len(rows) >= limit
        if near:
            ended = time.monotonic()
            cursor.looked_near(rows, full=full, ended=ended, cost_s=max(0.0, ended - began - self._claim_s))
        else:
            self._claim_s += (took_s - self._claim_s) / 16
            cursor.claimed(rows, full=full)
        return len(rows)

    def _new_lanes(self, queue: str) -> Statement[Lane]:
        return looking.new_lanes(queue, [lane.priority for lane in self._cursors[queue].lanes()], self._names)

    async def _rescan(self, queue: str, limit: int) -> int:
        began = await self._database_now()
        statement = statements.rescan(
            queue, limit=limit, names=self._names, worker_id=self._worker_id, lease_s=self._settings.lease_s
        )
        rows, took_s = await self._send(queue, limit, statement)
        self.rescans += 1
        self._cursors[queue].rescanned(
            rows,
            full=len(rows) >= limit,
            began=began,
            ended=time.monotonic(),
            # What it cost beyond an ordinary claim is the walk over dead and foreign rows.
            cost_s=max(0.0, took_s - self._claim_s),
        )
        return len(rows)

    async def _send(self, queue: str, limit: int, statement: Statement[Claimed]) -> tuple[list[Claimed], float]:
        """Run a claim and start what it brings; gives the tasks, in claim order, and the seconds it took."""
        sent_at = time.monotonic()
        try:
            rows = await self._link.fetch_all(statement)
        except BaseException as error:
            # Also when this worker stops waiting, because it is told to end.
            self._unanswered.lost()
            # The next server may be another one, with another clock.
            self._clock = None
            if isinstance(error, DatabaseError) and is_about_time(error):
                self._batches[queue].timed_out(limit)
            raise
        took_s = time.monotonic() - sent_at
        if rows:
            self._batches[queue].answered(rows, took_s)
            rows.sort(key=claim_order)
            self._found_at = time.monotonic()
            self._unanswered.heard(rows[0].lease_id)
            self._leases.add(rows[0].lease_id, len(rows), sent_at)
            self._executor.start(queue, rows)
        return rows, took_s

    async def _database_now(self) -> datetime:
        """Give the database's time, rounded down: read now and then, extrapolated in between."""
        if self._clock is None or time.monotonic() - self._clock[1] > CLOCK_READ_S:
            read = await self._link.fetch_one(statements.clock())
            if read is None:
                raise DatabaseUnavailable("the database's clock could not be read")
            self._clock = (read, time.monotonic())
        return self._clock[0] + timedelta(seconds=time.monotonic() - self._clock[1])

    async def _drained(self) -> bool:
        """Tell whether nothing is left to do: nothing running or unwritten, nothing due where a slot is free."""
        if self._executor.running or self._is_writing():
            return False
        found, _ = await self._claim(from_head=True)
        return found == 0

    async def _end_drain(self) -> None:
        self.gave_up = await drain.gives_up(self._link, self._slots.queues, self._names, self._slots.full_queues())
        self._stop.set()

    async def _sleep(self) -> float:
        """Fall asleep if the bells allow it; returns after waking up, or at once, awake."""
        full = self._slots.full_queues()
        queues = [queue for queue in self._slots.queues if queue not in full]
        state = await self._bell.fall_asleep(queues)
        if state in {Sleep.IN_FLIGHT, Sleep.DEAF}:
            return self._bell.poll_s(self._found_at)
        found = False
        try:
            found = await self._stay_asleep(state, queues, full)
        finally:
            release = asyncio.ensure_future(self._bell.wake_up())
            try:
                # The claim goes first: the bell may be held a moment longer, a task need not wait.
                if not found and self._slots.any_free():
                    await self._claim()
            finally:
                await release
        return 0.0

    async def _stay_asleep(self, state: Sleep, queues: list[str], full: set[str]) -> bool:
        """Look, then sleep until there is a reason to wake; tells whether a look found something.

        Falling asleep owes every queue one look from the head. While rescans are slow they have
        to wait for their share of the time; the bell is armed meanwhile, and the look is made
        up for in between.
        """
        until = time.monotonic() + self._settings.safety_poll_s * (0.75 + self._rng.random() / 4)
        owed = set(queues)
        while not self._stop.is_set() and not self._bell.rung.is_set():
            self.progress_at = time.monotonic()
            if owed:
                if await self._look(owed):
                    return True
                if not owed:
                    until = min(until, await self._next_due(queues))
            now = time.monotonic()
            wait_s = min([until - now, *(self._look_in_s(queue, now) for queue in owed)])
            if until <= now or self._slots.full_queues() != full:
                return False
            if state is Sleep.HELD:
                wait_s = min(wait_s, RECHECK_S)
            await self._wait_for_bell(max(0.0, wait_s), also_slots=bool(full))
            if state is Sleep.HELD and not self._bell.rung.is_set() and await self._bell.recheck():
                return False
        return False

    async def _wait_for_bell(self, wait_s: float, *, also_slots: bool) -> None:
        freed = self._executor.slot_freed
        freed.clear()
        await wait_for_any(wait_s, self._bell.rung, self._stop, *([freed] if also_slots else []))

    async def _look(self, owed: set[str]) -> int:
        """Claim from the owed queues, from the head where that may be done now; gives how many tasks."""
        found = 0
        for queue in sorted(owed):
            limit = self._limit_in(queue)
            if limit <= 0:
                continue
            if self._cursors[queue].rescan_in_s(time.monotonic()) > 0:
                found += await self._claim_from_cursor(queue, limit)
            else:
                owed.discard(queue)
                found += await self._rescan(queue, limit)
        return found

    def _look_in_s(self, queue: str, now: float) -> float:
        """Say in how many seconds an owed look, or the near one in its place, can be made."""
        cursor = self._cursors[queue]
        return min(cursor.rescan_in_s(now), cursor.near_in_s(now))

    async def _next_due(self, queues: list[str]) -> float:
        """Say when the next task becomes due, on the monotonic clock; infinity if none waits."""
        due_in_s = await self._link.fetch_one(statements.due_in(queues, self._names))
        return float("inf") if due_in_s is None else time.monotonic() + max(0.0, due_in_s) + DUE_MARGIN_S
