"""While rescans are slow (B-01: dead rows that vacuum cannot remove) a worker still finds what it passed."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest

from pgtasks.engine import cursor
from pgtasks.engine.sources import Line
from pgtasks.store import looking, session
from tests.claims.helpers import analyze, avalue, until
from tests.claims.rig import Rig
from tests.database import Connection, value

DEAD = 50_000
INSERT = "INSERT INTO pgtasks.tasks (name, priority) VALUES ('t', %s) RETURNING id"


@contextmanager
def _dead_rows(dsn: str) -> Iterator[Connection]:
    """A database in which DEAD finished tasks stay in the index, because a snapshot is open."""
    with psycopg.connect(dsn) as reader, psycopg.connect(dsn, autocommit=True) as connection:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        value(reader, "SELECT count(*) FROM pgtasks.workers")
        connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, %s)", (DEAD,))
        connection.execute("DELETE FROM pgtasks.tasks")
        connection.execute("VACUUM pgtasks.tasks")
        yield connection


@asynccontextmanager
async def _busy(dsn: str, connection: Connection, backlog: int = 5000) -> AsyncIterator[Rig]:
    """A worker with a backlog that lasts, which has learned that its rescans are slow and has run for a while."""
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, run_at)"
        " SELECT 't', clock_timestamp() - interval '1 h' + n * interval '1 ms' FROM generate_series(1, %s) n",
        (backlog,),
    )
    async with Rig(dsn, concurrency=10, hold_s=0.01) as rig:
        (place,) = [one.cursor for one in rig.claimer.turns.sources() if isinstance(one, Line)]
        await rig.ran(500)
        assert place.rescan_in_s(time.monotonic()) > 10
        yield rig


@pytest.fixture(autouse=True)
def _slow_rescans_are_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were a hundred times as many dead rows: after the first, a rescan is due each 30 s only."""
    monkeypatch.setattr(cursor.Cursor, "rescan_in_s", _rescan_in_s)
    # Claims that look back find the same, up to a second.
    monkeypatch.setattr(cursor.Cursor, "back_due", lambda _self, _now: False)


def _rescan_in_s(self: cursor.Cursor, now: float) -> float:
    return max(0.0, self._rescanned_at + cursor.RESCAN_S_MAX - now)


async def _found_in_time(rig: Rig, task_id: int, since: float) -> None:
    rescans = rig.claimer.rescans
    await until(lambda: task_id in rig.started, 5.0)
    assert rig.started[task_id] - since < 1.2
    assert rig.claimer.rescans == rescans


async def test_a_new_priority_is_found_within_about_a_second(fresh_database: str) -> None:
    """Under load, higher than what there is."""
    with _dead_rows(fresh_database) as connection:
        async with _busy(fresh_database, connection) as rig:
            task_id = value(connection, INSERT, 9)
            await _found_in_time(rig, task_id, time.monotonic())


async def test_a_late_commit_is_found_within_about_a_second(fresh_database: str) -> None:
    """Inserted ahead of the cursor, committed when that has passed it."""
    with _dead_rows(fresh_database) as connection:
        async with (
            await psycopg.AsyncConnection.connect(fresh_database) as late,
            _busy(fresh_database, connection) as rig,
        ):
            ahead = "SELECT run_at FROM pgtasks.tasks WHERE state = 'queued' ORDER BY run_at OFFSET 200 LIMIT 1"
            task_id = await avalue(
                late, "INSERT INTO pgtasks.tasks (name, run_at) VALUES ('t', %s) RETURNING id", value(connection, ahead)
            )
            await rig.ran(len(rig.started) + 400)
            assert task_id not in rig.started
            await late.commit()
            await _found_in_time(rig, task_id, time.monotonic())
            assert len(rig.started) < 5000


async def test_an_idle_worker_finds_both_too(fresh_database: str) -> None:
    """Its bell rings; a claim from the cursor alone would find neither."""
    with _dead_rows(fresh_database) as connection:
        async with (
            await psycopg.AsyncConnection.connect(fresh_database) as late,
            _busy(fresh_database, connection, 1500) as rig,
        ):
            await rig.ran(1500)
            late_id = await avalue(late, INSERT, 0)
            connection.execute("INSERT INTO pgtasks.tasks (name) VALUES ('t')")
            await rig.ran(1501)
            await late.commit()
            await _found_in_time(rig, late_id, time.monotonic())
            await _found_in_time(rig, value(connection, INSERT, -3), time.monotonic())


def test_the_probe_finds_the_beginning_of_every_new_lane_and_walks_no_old_one(fresh_database: str) -> None:
    """Right before its first task that is due and known; in the gaps, above and below."""
    with _dead_rows(fresh_database) as connection:
        connection.execute(
            "INSERT INTO pgtasks.tasks (name, priority, run_at) VALUES"
            " ('t', 0, '2001-01-01'), ('t', 9, '2001-01-01'), ('foreign', 4, '2001-01-01'), ('t', 4, '2001-01-02'),"
            " ('t', 4, '2001-01-03'), ('t', -1, '2100-01-01'), ('t', -32768, '2001-01-01'), ('t', 32767, '2001-01-01')"
        )
        statement = looking.new_lanes("default", [9, 5, 0], ["t"])
        found = session.fetch_all(connection, statement)
        assert [lane.priority for lane in found] == [-32768, 4, 32767]
        first = value(connection, "SELECT min(id) FROM pgtasks.tasks WHERE priority = 4 AND name = 't'")
        assert (found[1].id, found[1].run_at.day) == (first - 1, 2)
        plan: list[dict[str, Any]] = analyze(connection, statement)
        (scan,) = [node for node in plan if node.get("Index Name") == "tasks_claim_order"]
        assert scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] < 60
