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

One bad schedule does not stop the others. An expression that cannot be planned is flagged, and
waits for an edit. A batch that the database refuses is fired one by one; the one that is
refused alone is flagged, and tried again at its next slot.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import lru_cache

from pgtasks import events
from pgtasks.app import App
from pgtasks.cron import CronSchedule
from pgtasks.errors import DatabaseError, DatabaseUnavailable, ScheduleError
from pgtasks.firing import Due, Plan, plan
from pgtasks.store import scheduling
from pgtasks.store.link import Link
from pgtasks.store.scheduling import Fired

BATCH_MAX = 500
BUSY_S = 0.2
# Somebody was faster with a part of what we planned: look again, not all at the same moment.
OUTRUN_S = 0.1
SLEEP_S_MAX = 15.0
DEAF_SLEEP_S_MAX = 1.0


class Scheduler:
    """Fires due schedules."""

    def __init__(self, link: Link, rng: random.Random, hears: Callable[[], bool]) -> None:
        """``hears`` tells whether ``changed`` is set when somebody changes a schedule."""
        self._link, self._rng, self._hears = link, rng, hears
        self._seed = rng.getrandbits(62)
        self._ask_for_locks = True
        self.changed = asyncio.Event()
        self.fired = 0

    async def round(self) -> float:
        """Do one round; says when to come back."""
        rows = await self._link.fetch_all(scheduling.due(limit=BATCH_MAX, seed=self._seed))
        due = [row for row in rows if row.name is not None]
        if not due:
            return self._sleep_s(rows[0])
        plans = await self._plan(due)
        if not plans:
            return 0.0
        done = await self._fire(plans)
        self.fired += done.fired
        self._ask_for_locks = done.busy == 0
        if done.busy:
            return BUSY_S * (0.5 + self._rng.random())
        return 0.0 if done.schedules == len(plans) else OUTRUN_S * self._rng.random()

    def _sleep_s(self, row: Due) -> float:
        bound_s = SLEEP_S_MAX if self._hears() else DEAF_SLEEP_S_MAX
        if row.next_at is None:
            return bound_s
        return min(bound_s, max(0.001, (row.next_at - row.now).total_seconds()))

    async def _plan(self, due: list[Due]) -> list[Plan]:
        """Plan in a thread, for cron times cost; what cannot be planned is flagged."""
        planned = await asyncio.to_thread(lambda: [_plan_one(one) for one in due])
        for one, found in zip(due, planned, strict=True):
            if isinstance(found, str):
                await self._flag(one.name or "", one, found)
        return [found for found in planned if isinstance(found, Plan)]

    async def _flag(self, name: str, one: Due, problem: str) -> None:
        events.warning("schedule cannot be planned", schedule=name, error=problem)
        await self._link.fetch_all(scheduling.flag(name, one.planned_from, problem, None))

    async def _fire(self, plans: list[Plan]) -> Fired:
        try:
            done = await self._link.fetch_one(scheduling.fire(plans, locked=self._ask_for_locks))
        except DatabaseUnavailable:
            raise
        except DatabaseError as error:
            return await self._fire_singly(plans, error)
        if done is None:
            raise DatabaseUnavailable("the fire statement gave no answer")
        _report(done)
        return done

    async def _fire_singly(self, plans: list[Plan], error: DatabaseError) -> Fired:
        """Fire plans one by one after the database refused them together."""
        if len(plans) > 1:
            parts = [await self._fire([one]) for one in plans]
            return Fired(*(sum(column) for column in zip(*parts, strict=True)))
        one = plans[0]
        problem = f"cannot be fired: {str(error).splitlines()[0]}"
        if error.sqlstate == _UNIQUE_VIOLATION:
            # Another scheduler recorded the same slot at the same moment.
            return Fired(0, 0, 0, 0, 0)
        events.error("schedule cannot be fired", schedule=one.name, error=problem)
        await self._link.fetch_all(scheduling.flag(one.name, one.planned_from, problem, one.next_fire))
        return Fired(1, 0, 0, 0, 0)


_UNIQUE_VIOLATION = "23505"


async def write_schedules(link: Link, app: App, deployment: str) -> None:
    """Write the app's schedules to the table, and say what was left alone."""
    found = await link.fetch_one(scheduling.sync(deployment, list(app.schedules.values())))
    if found is None:
        return
    if found.written:
        events.info("schedules written", schedules=found.written)
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
            advice="they go on firing; remove them with: pgtasks schedules prune",
        )


def _plan_one(due: Due) -> Plan | str:
    try:
        return plan(due, _schedule(due.expression, due.timezone, due.seconds))
    except ScheduleError as error:
        return str(error)


@lru_cache(maxsize=10_000)
def _schedule(expression: str, timezone: str, seconds: bool) -> CronSchedule:  # noqa: FBT001 - a cache's key
    return CronSchedule(expression, timezone, seconds=seconds)


def _report(done: Fired) -> None:
    if done.fired or done.skipped or done.missed:
        events.info("schedules fired", fired=done.fired, skipped_overlap=done.skipped, missed=done.missed)
