"""Schedules by SQL, statements by hand, and schedulers inside the test's own event loop."""

import asyncio
import random
import time
import types
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import psycopg
from psycopg import sql

from pgtasks.cron import CronSchedule
from pgtasks.engine.periodic import Signal, repeat
from pgtasks.engine.scheduler import Scheduler
from pgtasks.firing import Due, Plan, plan
from pgtasks.store import conninfo, scheduling, session
from pgtasks.store.link import Link
from pgtasks.store.scheduling import Fired
from pgtasks.store.session import Statement
from tests.database import Connection, rows, value

FIRES = "SELECT outcome FROM pgtasks.schedule_fires WHERE schedule = %s ORDER BY fire_time"
TASKS = "SELECT count(*) FROM pgtasks.tasks WHERE headers ->> 'pgtasks.schedule' = %s"
# Slots that do not have exactly one task, wherever the task is by now, and tasks without a slot.
UNPAIRED = """
WITH task AS (
    SELECT id, headers FROM pgtasks.tasks
    UNION ALL
    SELECT id, headers FROM pgtasks.history
    UNION ALL
    SELECT id, headers FROM pgtasks.dead_letters
),
fire AS (SELECT * FROM pgtasks.schedule_fires WHERE outcome = 'fired')
SELECT f.schedule, f.fire_time, t.id, t.headers
FROM fire AS f
FULL JOIN (SELECT * FROM task WHERE headers ? 'pgtasks.schedule') AS t
    ON f.task_id = t.id AND t.headers ->> 'pgtasks.schedule' = f.schedule
    AND (t.headers ->> 'pgtasks.fire_time')::timestamptz = f.fire_time
WHERE f.schedule IS NULL OR t.id IS NULL
"""


def add(connection: Connection, name: str, expression: str = "@every 1s", **columns: Any) -> None:
    """Insert a schedule as a person does."""
    given = {"name": name, "expression": expression, "task": "echo", **columns}
    connection.execute(
        sql.SQL("INSERT INTO pgtasks.schedules ({}) VALUES ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(map(sql.Literal, given.values()))
        )
    )


def make_due(connection: Connection, seconds: float = 1.0, *names: str) -> None:
    """Set back schedules, all of them unless named, so that slots of the last seconds are due."""
    rows(
        connection,
        "UPDATE pgtasks.schedules SET planned_from = clock_timestamp() - make_interval(secs => %s), next_fire = NULL"
        " WHERE %s = '{}' OR name = ANY(%s)",
        seconds,
        list(names),
        list(names),
    )


def connect(dsn: str) -> Connection:
    """Open a connection with the settings of a scheduler's."""
    return psycopg.connect(conninfo.complete(dsn, "schedule"), autocommit=True)


def read_due(connection: Connection, limit: int = 500) -> list[Due]:
    """Read what is due."""
    found = session.fetch_all(connection, scheduling.due(limit=limit, seed=1))
    return [one for one in found if one.name is not None]


def plan_due(connection: Connection) -> list[Plan]:
    """Plan what is due."""
    return [plan(one, CronSchedule(one.expression, one.timezone, seconds=one.seconds)) for one in read_due(connection)]


def fire(connection: Connection, plans: list[Plan], *, locked: bool = True) -> Fired:
    """Carry out plans."""
    done = session.fetch_one(connection, scheduling.fire(plans, locked=locked))
    assert done is not None
    return done


def outcomes(connection: Connection, name: str) -> list[str]:
    """Give what became of a schedule's slots."""
    return [outcome for (outcome,) in rows(connection, FIRES, name)]


def fired(connection: Connection, name: str) -> int:
    """Count a schedule's fires."""
    return outcomes(connection, name).count("fired")


def assert_paired(connection: Connection) -> None:
    """Check that every fire has its task, and every task of a schedule its fire."""
    assert rows(connection, UNPAIRED) == []


def gaps(connection: Connection, period_s: int = 1) -> list[tuple[Any, ...]]:
    """Give the slots that are missing between the first and the last one of each periodic schedule."""
    return rows(
        connection,
        "SELECT schedule, fire_time, before FROM ("
        " SELECT schedule, fire_time, lag(fire_time) OVER (PARTITION BY schedule ORDER BY fire_time) AS before"
        " FROM pgtasks.schedule_fires) AS f WHERE fire_time - before <> make_interval(secs => %s)",
        period_s,
    )


def notices(listening: Connection, connection: Connection) -> int:
    """Count what a listening session has heard of changes; the last thing it hears is this function's own."""
    connection.execute("NOTIFY pgtasks_schedules, 'that was all'")
    for count, notice in enumerate(listening.notifies(timeout=10.0)):
        if notice.payload:
            return count
    raise AssertionError("its own notification has not come")


def problem(connection: Connection, name: str) -> Any:
    """Give what is wrong with a schedule."""
    return value(connection, "SELECT problem FROM pgtasks.schedules WHERE name = %s", name)


class CountingLink(Link):
    """A link that counts its statements."""

    def __init__(self, dsn: str, **settings: Any) -> None:
        super().__init__(dsn, "schedule", **settings)
        self.statements = 0

    async def fetch_all(self, statement: Statement[Any], deadline_s: float | None = None) -> list[Any]:
        """Run a statement, and count it."""
        self.statements += 1
        return await super().fetch_all(statement, deadline_s)


class Rig:
    """Schedulers in the test's event loop, each with a connection of its own; a context manager."""

    def __init__(self, dsn: str, count: int = 1, *, hears: Callable[[], bool] = lambda: True) -> None:
        self.links = [CountingLink(dsn) for _ in range(count)]
        self.schedulers = [Scheduler(link, random.Random(), hears) for link in self.links]
        self._stop = Signal()

    @property
    def statements(self) -> int:
        """How many statements were sent."""
        return sum(link.statements for link in self.links)

    async def __aenter__(self) -> Self:
        self._parts = [
            asyncio.create_task(repeat("schedule", one.round, stop=self._stop, rng=random.Random(), wake=one.changed))
            for one in self.schedulers
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._stop.set()
        await asyncio.gather(*self._parts)
        for link in self.links:
            await link.close()


async def until(condition: Callable[[], object], timeout_s: float = 10.0, hint: str = "it did not come true") -> None:
    """Wait for a condition without holding up the event loop."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"after {timeout_s:g} s: {hint}"
        await asyncio.sleep(0.02)


def utc(text: str) -> datetime:
    """Read a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def a_due(now: datetime, **columns: Any) -> Due:
    """Give a schedule as it is read, planned long before."""
    given: dict[str, Any] = {
        "next_at": None,
        "name": "s",
        "expression": "*/5 * * * *",
        "timezone": "UTC",
        "seconds": False,
        "missed": "latest",
        "missed_max": 100,
        "jitter_s": 0.0,
        "planned_from": now - timedelta(days=3653),
        "next_fire": None,
        "problem": None,
    }
    return Due(now=now, **{**given, **columns})
