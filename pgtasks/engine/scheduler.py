"""The scheduler: due schedules become tasks, exactly once per slot, on any number of processes.

No leader and no memory of one. Every scheduler does the same round::

    read      which schedules are due, by one reading of the database's clock
    plan      in a thread: cron times, missed slots, the next fire (``pgtasks.firing``)
    fire      one statement: fire rows, tasks, next fire times (``schedules_fire.sql``)
    sleep     until the next fire, bounded; a change of a schedule ends the sleep

Killed before the fire statement commits: nothing happened, another scheduler does it. Killed
after: it is done. A reply that is lost is the same as either; the next round reads what is so.

The statement leaves alone, at first, what another scheduler holds the advisory lock of. That
says nothing about whether it fires it: the holder may be stuck, or a stranger. So a round that
met a taken lock is followed, BUSY_S later, by one that does not ask for locks; the row locks
and the primary key keep it right.

One bad schedule does not stop the others. What this process cannot plan it flags, and leaves
alone for a minute by itself, for another host may know the time zone. Those that wait
for a unique key (overlap "skip") are fired after the others, and wait briefly. A batch that the
database refuses, or that waits for a stranger's lock, is remembered and tried again in halves,
apart from the rest, until what fails fails alone. If its values are refused its slots are
recorded as missed, and it has its next slot; anything else, and it waits a minute.

Nothing here spins. A round that achieved nothing is followed by an ever longer pause, and the
sleep is measured by a clock that nobody sets.
"""

from __future__ import annotations

import asyncio
import operator
import random
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache

from pgtasks import events
from pgtasks.app import App
from pgtasks.cron import CronSchedule
from pgtasks.engine.periodic import Signal
from pgtasks.errors import DatabaseError, DatabaseUnavailable, ScheduleError
from pgtasks.firing import Due, Plan, plan, without_fires
from pgtasks.store import scheduling
from pgtasks.store.link import Link
from pgtasks.store.scheduling import Fired
from pgtasks.store.session import QUERY_CANCELED, constraint_of, is_about_data, is_about_time

BATCH_MAX = 500
# Bounds of one statement and of one stay in the thread: what is left is for the next round.
BATCH_SLOTS_MAX = 5000
PLAN_S_MAX = 1.0
BUSY_S = 0.2
# Somebody was faster with a part of what we planned: look again, not all at the same moment.
OUTRUN_S = 0.1
FRUITLESS_S_MAX = 1.0
SLEEP_S_MAX = 15.0
SLEEP_S_MIN = 0.001
DEAF_SLEEP_S_MAX = 1.0
# How long this process leaves alone what it cannot plan, and how much of it it remembers.
LEFT_OUT_S = 60.0
LEFT_OUT_MAX = 10_000
# How long a batch waits for a lock: that of a unique key in flight, and any other.
KEY_WAIT_MS, WAIT_MS = 100, 500
# How long a round goes on with batches that were refused, and how many of those are remembered.
APART_S_MAX = 0.3
APART_MAX = 1000
_NOTHING = Fired(0, 0, 0, 0, 0, 0.0)


class Scheduler:
    """Fires due schedules."""

    def __init__(self, link: Link, rng: random.Random, hears: Callable[[], bool]) -> None:
        """``hears`` tells whether ``changed`` is set when somebody changes a schedule."""
        self._link, self._rng, self._hears = link, rng, hears
        self._seed = rng.getrandbits(62)
        self._batch_max = BATCH_MAX
        self._left_out: dict[tuple[str, datetime], float] = {}
        self._apart: list[frozenset[str]] = []
        self._ask_for_locks = True
        self._fruitless = 0
        self.changed = Signal()
        self.fired = 0

    async def round(self) -> float:
        """Do one round; says when to come back."""
        left_out = self._still_left_out()
        rows = await self._link.fetch_all(scheduling.due(limit=self._batch_max, seed=self._seed, left_out=left_out))
        due = [row for row in rows if row.name is not None]
        if not due:
            self._fruitless = 0
            return self._sleep_s(rows[0])
        # In a thread, for cron times cost.
        plans, problems = await asyncio.to_thread(_plan_all, due)
        done = await self._fire(plans) if plans else _NOTHING
        for one, problem in problems:
            await self._leave_out(one, problem)
        self.fired += done.fired
        self._ask_for_locks = not done.busy
        return self._pause_s(rows[0], len(due), done.schedules + len(problems), done.busy)

    def _sleep_s(self, row: Due) -> float:
        bound_s = SLEEP_S_MAX if self._hears() else DEAF_SLEEP_S_MAX
        if row.next_at is None:
            return bound_s
        return min(bound_s, max(SLEEP_S_MIN, (row.next_at - row.now).total_seconds()))

    def _pause_s(self, row: Due, due: int, achieved: int, busy: int) -> float:
        """Say how long to wait before the next look, after a round in which something was due."""
        self._fruitless = 0 if achieved else self._fruitless + 1
        if achieved == due:
            return 0.0
        # Another selection next time: what is held by somebody may be more than one batch.
        self._seed = self._rng.getrandbits(62)
        if achieved:
            pause_s = (BUSY_S if busy else OUTRUN_S) * (0.5 + self._rng.random())
        else:
            bound_s = min(FRUITLESS_S_MAX, OUTRUN_S * 2.0 ** min(self._fruitless, 8))
            pause_s = bound_s * (0.5 + self._rng.random() / 2)
        # What is stuck does not make the next one late.
        return min(pause_s, self._sleep_s(row))

    def _still_left_out(self) -> list[tuple[str, datetime]]:
        now = time.monotonic()
        self._left_out = {key: until for key, until in self._left_out.items() if now < until}
        return list(self._left_out)

    async def _leave_out(self, one: Due, problem: str) -> None:
        """Leave alone what cannot be planned here; the flag in the table is for people, not for other hosts."""
        name = one.name or ""
        if len(self._left_out) >= LEFT_OUT_MAX:
            del self._left_out[next(iter(self._left_out))]
        self._left_out[name, one.planned_from] = time.monotonic() + LEFT_OUT_S
        if one.problem != problem:
            events.warning("schedule cannot be planned", schedule=name, error=problem)
        await self._link.fetch_one(scheduling.flag(name, one.planned_from, one.next_fire, problem, wait=False))

    async def _fire(self, plans: list[Plan]) -> Fired:
        """Fire in batches: the innocent first, then those with a unique key, then what was refused before."""
        apart, self._apart = self._apart, []
        known = frozenset[str]().union(*apart)
        rest = [one for one in plans if one.name not in known]
        done = _NOTHING
        for overlap in ("allow", "skip"):
            if batch := [one for one in rest if one.overlap == overlap]:
                done = _sum(done, await self._fire_batch(batch))
        return _sum(done, await self._fire_apart(plans, deque(apart + self._apart)))

    async def _fire_apart(self, plans: list[Plan], todo: deque[frozenset[str]]) -> Fired:
        """Fire the remembered groups, and halve those that are refused, for as long as a round may take."""
        until = time.monotonic() + APART_S_MAX
        done, kept = _NOTHING, list[frozenset[str]]()
        while todo and time.monotonic() < until:
            names = todo.popleft()
            batch = [one for one in plans if one.name in names]
            if not batch:
                kept.append(names)
                continue
            self._apart = []
            done = _sum(done, await self._fire_batch(batch, names))
            halved = len(batch) > 1 and len(self._apart) > 1
            (todo if halved else kept).extend(self._apart)
        # What had no turn has the first one in the next round.
        self._apart = [*todo, *kept][:APART_MAX]
        return done

    async def _fire_batch(self, plans: list[Plan], apart: frozenset[str] = frozenset()) -> Fired:
        """Fire a batch; ``apart`` is the remembered group it is of."""
        try:
            done = await self._carry_out(plans, locked=self._ask_for_locks)
        except DatabaseError as error:
            if isinstance(error, DatabaseUnavailable) and not is_about_time(error):
                raise
            if constraint_of(error) == "schedule_fires_pkey":
                # Somebody recorded the same slot at the same moment; the next look sees it.
                self._keep_apart(apart)
                return _NOTHING
            self._keep_apart(apart - {one.name for one in plans})
            return await self._refused(plans, error)
        self._keep_apart(apart - {one.name for one in plans} if done.schedules == len(plans) else apart)
        self._batch_max = min(BATCH_MAX, self._batch_max * 2)
        if done.fired or done.skipped or done.missed:
            events.info(
                "schedules fired",
                fired=done.fired,
                skipped_overlap=done.skipped,
                missed=done.missed,
                late_s=round(done.late_s, 3),
            )
        return done

    def _keep_apart(self, names: frozenset[str]) -> None:
        if names:
            self._apart.append(names)

    async def _refused(self, plans: list[Plan], error: DatabaseError) -> Fired:
        """Go on in halves, apart from the rest, or say what is wrong with the only one."""
        middle = len(plans) // 2
        for half in (plans[:middle], plans[middle:]):
            self._keep_apart(frozenset(one.name for one in half))
        if len(plans) > 1:
            if error.sqlstate == QUERY_CANCELED:
                # It took too long: there may be nothing wrong but the size.
                self._batch_max = max(1, len(plans) // 4)
            return _NOTHING
        (one,) = plans
        problem = f"cannot be fired: {str(error).splitlines()[0]}"
        events.error("schedule cannot be fired", schedule=one.name, error=problem)
        lost = is_about_data(error) and await self._miss(one)
        next_fire = one.next_fire if lost else one.expected
        flagged = await self._link.fetch_one(
            scheduling.flag(one.name, one.planned_from, next_fire, problem, wait=not lost)
        )
        return _NOTHING._replace(schedules=int(flagged is not None))

    async def _miss(self, one: Plan) -> bool:
        """Record a plan's slots as missed; tells whether that went in."""
        try:
            return (await self._carry_out([without_fires(one)], locked=False)).schedules == 1
        except DatabaseUnavailable:
            raise
        except DatabaseError:
            return False

    async def _carry_out(self, plans: list[Plan], *, locked: bool) -> Fired:
        wait_ms = KEY_WAIT_MS if any(one.overlap == "skip" for one in plans) else WAIT_MS
        done = await self._link.fetch_one(scheduling.fire(plans, locked=locked, wait_ms=wait_ms))
        if done is None:
            raise DatabaseUnavailable("the fire statement gave no answer")
        return done


async def write_schedules(link: Link, app: App, label: str) -> None:
    """Write the app's schedules to the table, and say what was left alone.

    ``label`` names the deployment that they belong to, unless the app names it.
    """
    deployment = app.deployment or label
    found = await link.fetch_one(scheduling.sync(deployment, list(app.schedules.values())))
    if found is None:
        return
    if found.written:
        events.info("schedules written", schedules=found.written, deployment=deployment)
    if found.foreign_names:
        events.warning(
            "schedules not written",
            schedules=found.foreign_names,
            why="they belong to a person or to another deployment",
            advice="give them other names, or remove those with: pgtasks schedules remove NAME",
        )
    if found.removed:
        events.warning(
            "schedules are no longer in the code",
            schedules=found.removed,
            deployment=deployment,
            advice="they go on firing; remove them with: pgtasks schedules prune",
        )


def _sum(one: Fired, other: Fired) -> Fired:
    return Fired(*map(operator.add, one, other))._replace(late_s=max(one.late_s, other.late_s))


def _plan_all(due: list[Due]) -> tuple[list[Plan], list[tuple[Due, str]]]:
    """Plan as many as one statement and one stay in the thread can take; name what cannot be planned."""
    plans: list[Plan] = []
    problems: list[tuple[Due, str]] = []
    slots, until = 0, time.monotonic() + PLAN_S_MAX
    for one in due:
        try:
            found = plan(one, _schedule(one.expression, one.timezone, one.seconds))
        except ScheduleError as error:
            problems.append((one, str(error)))
        except Exception as error:  # noqa: BLE001 - no fault of one schedule may stop the others
            problems.append((one, f"cannot be planned: {type(error).__name__}: {error}"))
        else:
            plans.append(found)
            slots += len(found.slots)
        if slots >= BATCH_SLOTS_MAX or time.monotonic() > until:
            break
    return plans, problems


@lru_cache(maxsize=10_000)
def _schedule(expression: str, timezone: str, seconds: bool) -> CronSchedule:  # noqa: FBT001 - a cache's key
    return CronSchedule(expression, timezone, seconds=seconds)
