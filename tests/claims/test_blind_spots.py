"""A busy worker finds within a second what its cursor cannot see: late commits, past dates, new priorities."""

import time
from typing import Any

import psycopg
import pytest

from pgtasks.engine.cursor import Cursor
from pgtasks.outcome import Failure, RetryIn
from pgtasks.store import session, statements
from pgtasks.store.session import Statement
from tests.claims.helpers import ME, avalue, claim, rescan, until
from tests.claims.rig import Rig
from tests.database import Connection

Async = psycopg.AsyncConnection[Any]


def _backlog(connection: Connection, count: int) -> None:
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, %s)", (count,))


@pytest.mark.parametrize(
    "columns",
    [
        "run_at) VALUES ('t', '2001-01-01'",
        "priority) VALUES ('t', 9",
        "run_at) VALUES ('t', clock_timestamp() - interval '5 s'",
    ],
    ids=["past date", "new priority", "a few seconds ago"],
)
async def test_found_within_a_second_under_load(dsn: str, connection: Connection, columns: str) -> None:
    """Although the backlog in front of the cursor would last much longer."""
    _backlog(connection, 3000)
    async with Rig(dsn, concurrency=10, hold_s=0.01) as rig:
        await rig.ran(200)
        ((task_id,),) = connection.execute(
            f"INSERT INTO pgtasks.tasks (name, {columns}) RETURNING id".encode()
        ).fetchall()
        inserted = time.monotonic()
        await until(lambda: task_id in rig.started, 3.0)
        assert rig.started[task_id] - inserted < 1.0
        assert len(rig.started) < 2000


async def test_a_late_commit_is_found_within_a_second_under_load(dsn: str, connection: Connection) -> None:
    """Inserted before tasks that were claimed long before it was committed."""
    async with await psycopg.AsyncConnection.connect(dsn) as late:
        task_id = await avalue(late, "INSERT INTO pgtasks.tasks (name) VALUES ('t') RETURNING id")
        _backlog(connection, 3000)
        async with Rig(dsn, concurrency=10, hold_s=0.01) as rig:
            await rig.ran(300)
            assert task_id not in rig.started
            await late.commit()
            committed = time.monotonic()
            await until(lambda: task_id in rig.started, 3.0)
            assert rig.started[task_id] - committed < 1.0
            assert len(rig.started) < 2000


async def test_a_backlog_that_appears_behind_the_cursor_is_claimed_from_the_cursor(
    dsn: str, connection: Connection
) -> None:
    """A bulk insert committed late, or a resumed queue: as many tasks with hardly more rescans."""
    async with Rig(dsn, concurrency=50) as rig:
        await rig.asleep()
        connection.execute(
            "INSERT INTO pgtasks.tasks (name, run_at)"
            " SELECT 't', clock_timestamp() - interval '1 h' + n * interval '1 ms' FROM generate_series(1, 5000) n"
        )
        before = rig.claimer.rescans
        await rig.ran(5000)
        assert rig.claimer.rescans - before < 25


@pytest.mark.parametrize("statement", ["retry", "release"])
async def test_what_returns_to_the_queue_lands_ahead_of_every_cursor(
    dsn: str, connection: Connection, statement: str
) -> None:
    """After it returned, a claim from any cursor of before finds it: no rescan is needed.

    What is swept is a suspect from then on, and those are claimed without a cursor.
    """
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, 3)")
    taken = rescan(connection, 1)
    cursor = Cursor()
    cursor.claimed(claim(connection, 10), full=False, ended=0.0)
    ended = [(task.id, task.lease_id) for task in taken]
    failure = Failure("ValueError", "no", "")
    returning: dict[str, Statement[Any]] = {
        "retry": statements.retry(ME, ended, [RetryIn(0.0, failure)], []),
        "release": statements.release(ME, ended, [0.0], []),
    }
    session.fetch_all(connection, returning[statement])
    assert [task.id for task in claim(connection, 10, lanes=cursor.lanes())] == [taken[0].id]
