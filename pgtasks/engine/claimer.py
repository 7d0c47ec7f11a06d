"""Claims: tasks taken from the sources as slots get free, polling while busy, asleep while idle."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Sequence
from functools import partial
from uuid import UUID

from pgtasks.engine import drain
from pgtasks.engine.ahead import Ahead
from pgtasks.engine.bell import DOZE_S_RESTLESS, POLL_S, RECHECK_S, Bell, Doze, Sleep
from pgtasks.engine.completer import Completer
from pgtasks.engine.executor import Executor
from pgtasks.engine.intake import Intake
from pgtasks.engine.leases import Leases
from pgtasks.engine.meter import Meter
from pgtasks.engine.periodic import Signal, wait_for_any
from pgtasks.engine.slots import Slots
from pgtasks.engine.sources import Line, Source, Suspects, Turns
from pgtasks.errors import DatabaseError, SchemaError
from pgtasks.settings import WorkerSettings
from pgtasks.store import statements
from pgtasks.store.link import Link

# Waiting this long for more slots turns many small claims into few.
GATHER_S = 0.002
GATHER_SLOTS = 50
# With this many outcomes unwritten per slot, the database is behind: claim no more for now.
BACKLOG_PER_SLOT = 4
# Sleeps end this much after the database says that a task is due, not just before it.
DUE_MARGIN_S = 0.001
# What was claimed by a worker that woke up gets this long to start, without its engine taking the interpreter.
START_S = 0.0005
# How long a drain that has nothing to do but what needs a child waits for one before it looks again.
CHILD_WAIT_S = 0.5


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
        stop: Signal,
        rng: random.Random,
        isolated: Sequence[str] = (),
        meter: Meter | None = None,
    ) -> None:
        self._link, self._bell, self._settings, self._names = link, bell, settings, [*names, *isolated]
        self._slots, self._leases, self._executor, self._completer = slots, leases, executor, completer
        self._stop, self._rng, self._doze = stop, rng, Doze()
        self._ahead = Ahead(slots.total)
        self._intake = Intake(
            link, worker_id, settings.lease_s, leases=leases, executor=executor, ahead=self._ahead, meter=meter
        )
        self.turns = self._turns_of(names, list(isolated))
        # What could start nothing when the last claim found nothing; None when it found something.
        self._full_at_rest: set[Source] | None = None
        self._gather_slots = min(GATHER_SLOTS, max(1, slots.total // 4))
        # When a round, or a part of a long one, last ended well. An idle worker gets there at every safety poll.
        self.progress_at = time.monotonic()
        # When a round last failed because of the database: the loop is alive, and waits for it.
        self.refused_at = -math.inf
        self.wakeups = 0
        # When the last sleep began to wait, after its looks; infinity for one that never got there.
        self._waited_from = math.inf
        # A drain ended although there was work that this worker should have done.
        self.gave_up = False

    @property
    def claims(self) -> int:
        """How many claims from a cursor there were."""
        return self._intake.claims

    @property
    def rescans(self) -> int:
        """How many claims from the head there were."""
        return self._intake.rescans

    def _turns_of(self, names: list[str], isolated: list[str]) -> Turns:
        """Make the sources; ``names`` are those of handlers in this process, ``isolated`` those of the others."""
        slots, executor, intake = self._slots, self._executor, self._intake

        def in_process(queue: str) -> int:
            return 0 if executor.exclusive else slots.free_in(queue)

        def in_children(queue: str) -> int:
            return min(slots.free_in(queue), executor.children_free())

        return Turns(
            [Suspects(queue, self._names, intake, partial(in_children, queue)) for queue in slots.queues],
            [Line(queue, isolated, intake, partial(in_children, queue)) for queue in slots.queues if isolated],
            [
                Line(queue, names, intake, partial(in_process, queue), may_wait=True)
                for queue in slots.queues
                if names or not isolated
            ],
        )

    def _full(self) -> set[Source]:
        """Give the sources of which nothing could start now."""
        return {source for source in self.turns.sources() if source.full}

    def _childless(self) -> list[str]:
        """Name the queues that have slots free and no child process for what needs one."""
        return sorted({source.queue for source in self._full()} - self._slots.full_queues())

    async def round(self) -> float:
        """Do one round: claim what fits; else wait for slots, poll, or sleep until the bell."""
        try:
            delay_s = await self._round()
        except (DatabaseError, SchemaError):
            self.refused_at = time.monotonic()
            raise
        self.progress_at = time.monotonic()
        return delay_s

    async def _round(self) -> float:
        self._executor.slot_freed.clear()
        self._executor.child_freed.clear()
        await self._intake.unanswered.give_back()
        if await self._wait_for_slots():
            return 0.0
        found, full = await self._claim()
        if found:
            return 0.0 if full or not self._slots.any_free() else await self._pause()
        if self._settings.drain:
            return await self._go_on_draining()
        now = time.monotonic()
        # Who cannot hear had better poll for some time: it looks ever so rarely afterwards.
        if now - self._intake.found_at < (self._doze.seconds(now) if self._bell.hears else DOZE_S_RESTLESS):
            return await self._pause()
        return await self._sleep()

    async def settle(self) -> None:
        """Give back what a claim took that was cut off as this worker ended; raises DatabaseUnavailable."""
        await self._intake.unanswered.settle()

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
        """Wait for the next poll; a queue whose slots are all taken, or a child, is served as soon as it is free."""
        if not self._slots.full_queues():
            return await self._wait_for_child(POLL_S) if self._full() else POLL_S
        await wait_for_any(POLL_S, self._executor.slot_freed, self._stop)
        await asyncio.sleep(GATHER_S)
        return 0.0

    async def _wait_for_child(self, wait_s: float) -> float:
        await wait_for_any(wait_s, self._executor.child_freed, self._stop)
        return 0.0

    async def _claim(self, *, from_head: bool = False) -> tuple[int, bool]:
        """Claim from every source once; gives how many tasks, and whether some claim was full."""
        # What comes to a worker at rest is rarely a suspect, and should not wait for a look for those.
        # Once a slot or a child got free, suspects may have waited for it.
        at_rest = self._full_at_rest is not None and self._full_at_rest == self._full()
        self._full_at_rest = None
        found, full, served = 0, False, []
        for source in self.turns.sources(ordinary_first=at_rest):
            if at_rest and found and not self.turns.is_ordinary(source):
                # They are next in a moment. Until then the handlers just started get this process's CPU.
                break
            limit = self._limit_of(source)
            if limit <= 0:
                continue
            count = await source.claim(limit, from_head=from_head, briefly=at_rest)
            found += count
            full = full or count == limit
            if count:
                served.append(source)
        self.turns.end(served)
        if not found:
            self._full_at_rest = self._full()
        return found, full

    def _limit_of(self, source: Source) -> int:
        return 0 if self._stop.is_set() else min(source.limit, self._ahead.most())

    async def _go_on_draining(self) -> float:
        """End the drain if nothing is left to do, or can be: nothing running or unwritten, nothing due; else wait."""
        if self._executor.running or self._is_writing():
            return await self._pause()
        found, _ = await self._claim(from_head=True)
        if found:
            return await self._pause()
        childless = self._childless()
        if childless and await drain.is_due(self._link, childless, self._names) and not self._executor.children_failing:
            return await self._wait_for_child(CHILD_WAIT_S)
        await self._end_drain()
        return 0.0

    async def _end_drain(self) -> None:
        childless = self._childless() if self._executor.children_failing else ()
        full = self._slots.full_queues()
        self.gave_up = await drain.gives_up(self._link, self._slots.queues, self._names, full, childless)
        self._stop.set()

    async def _sleep(self) -> float:
        """Fall asleep if the bells allow it; returns after waking up, or at once, awake."""
        full = self._full()
        ready = [source for source in self.turns.sources() if source not in full]
        queues = sorted({source.queue for source in ready})
        state = await self._bell.fall_asleep(queues)
        if state in {Sleep.IN_FLIGHT, Sleep.DEAF}:
            return self._bell.poll_s(self._intake.found_at)
        # A look that fails leaves nothing to claim with, and producers ring for as long as the bell is held.
        found = True
        self._waited_from = math.inf
        try:
            found = await self._stay_asleep(state, ready, full)
        finally:
            self.wakeups += 1
            self._doze.slept(self._waited_from, time.monotonic())
            try:
                # The claim goes first: the bell may be held a moment longer, a task need not wait.
                if not found and self._slots.any_free() and (await self._claim())[0]:
                    await asyncio.sleep(START_S)
            finally:
                await self._bell.wake_up()
        return 0.0

    async def _stay_asleep(self, state: Sleep, ready: list[Source], full: set[Source]) -> bool:
        """Look, then sleep until there is a reason to wake; tells whether a look found something.

        Falling asleep owes every source one look from the head. While rescans are slow they have
        to wait for their share of the time; the bell is armed meanwhile, and the look is made
        up for in between.
        """
        until = time.monotonic() + self._settings.safety_poll_s * (0.75 + self._rng.random() / 4)
        owed, queues = list(ready), sorted({source.queue for source in ready})
        while not self._stop.is_set() and not self._bell.rung.is_set():
            self.progress_at = time.monotonic()
            if owed:
                if await self._look(owed):
                    return True
                if not owed:
                    until = min(until, await self._next_due(queues))
            now = time.monotonic()
            wait_s = min([until - now, *(source.look_in_s(now) for source in owed)])
            if until <= now or self._full() != full:
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
        self._waited_from = min(self._waited_from, time.monotonic())
        await wait_for_any(wait_s, self._bell.rung, self._stop, *([freed] if also_slots else []))

    async def _look(self, owed: list[Source]) -> int:
        """Claim from the owed sources, from the head where that may be done now; gives how many tasks."""
        found = 0
        for source in list(owed):
            limit = self._limit_of(source)
            if limit <= 0:
                continue
            count, is_done = await source.look(limit)
            found += count
            if is_done:
                owed.remove(source)
        return found

    async def _next_due(self, queues: list[str]) -> float:
        """Say when the next task becomes due, on the monotonic clock; infinity if none waits."""
        due_in_s = await self._link.fetch_one(statements.due_in(queues, self._names))
        return float("inf") if due_in_s is None else time.monotonic() + max(0.0, due_in_s) + DUE_MARGIN_S
