"""Claims follow strict priority, then due time; and leave what is not theirs."""

import psycopg
import pytest
from psycopg import sql

from pgtasks.store.statements import Lane
from tests.claims.helpers import BEGINNING, claim, rescan
from tests.database import Connection, rows, value

LANES = [Lane(priority, BEGINNING.run_at, 0) for priority in (7, 0, -3)]


def _insert(connection: Connection, **columns: object) -> int:
    statement = sql.SQL("INSERT INTO pgtasks.tasks ({}) VALUES ({}) RETURNING id").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(sql.Placeholder() for _ in columns)
    )
    ((task_id,),) = connection.execute(statement, list(columns.values())).fetchall()
    return int(task_id)


@pytest.mark.parametrize("from_head", [True, False])
def test_higher_priority_first_then_earlier_due_time(connection: Connection, *, from_head: bool) -> None:
    """One by one, the tasks come in claim order, however they were inserted."""
    plan = [(0, 5), (7, 1), (-3, 900), (0, 50), (7, 20), (-3, 1), (0, 5)]
    ids = {
        _insert(connection, name="t", priority=priority, run_at=f"2020-01-01 00:00:{age % 60:02}+00"): (
            -priority,
            age % 60,
        )
        for priority, age in plan
    }
    expected = sorted(ids, key=lambda task_id: (*ids[task_id], task_id))
    got = []
    for _ in plan:
        got += [task.id for task in (rescan(connection, 1) if from_head else claim(connection, 1, lanes=LANES))]
    assert got == expected


@pytest.mark.parametrize("from_head", [True, False])
def test_what_is_not_claimable_is_left(connection: Connection, *, from_head: bool) -> None:
    """Unknown names, other queues, future and running tasks stay as they are."""
    mine = _insert(connection, name="t")
    _insert(connection, name="unknown")
    _insert(connection, name="t", queue="other")
    _insert(connection, name="t", run_at="2100-01-01")
    _insert(connection, name="T")
    for expected in ([mine], []):
        taken = rescan(connection, 100) if from_head else claim(connection, 100, lanes=LANES)
        assert [task.id for task in taken] == expected
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'queued'") == 4
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 1


@pytest.mark.parametrize("from_head", [True, False])
def test_a_paused_queue_gives_nothing(connection: Connection, *, from_head: bool) -> None:
    """Not even a lease row; after it was resumed it gives all."""
    _insert(connection, name="t")
    connection.execute("SELECT pgtasks.pause('default')")
    take = rescan if from_head else claim
    assert take(connection, 10) == []
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0
    connection.execute("SELECT pgtasks.resume('default')")
    assert len(take(connection, 10)) == 1


def test_two_claimers_share_and_never_double(dsn: str, connection: Connection) -> None:
    """Interleaved claims of two sessions, one of them in an open transaction."""
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, 30)")
    with psycopg.connect(dsn) as slow, psycopg.connect(dsn, autocommit=True) as quick:
        ids = [task.id for taken in (claim(slow, 10), rescan(quick, 10), claim(quick, 20)) for task in taken]
    assert len(ids) == len(set(ids)) == 30
    assert rows(connection, "SELECT count(*) FROM pgtasks.tasks WHERE attempt = 1 AND state = 'running'") == [(30,)]


def test_an_attempt_number_never_overflows(connection: Connection) -> None:
    """A count at the end of its type does not fail the batch it is in."""
    _insert(connection, name="t", attempt=2147483647)
    _insert(connection, name="t")
    assert sorted(task.attempt for task in claim(connection, 10)) == [1, 2147483647]
