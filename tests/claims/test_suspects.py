"""Suspects: tasks whose process was lost are claimed apart, a few at a time, and never forgotten."""

import time
from itertools import pairwise
from typing import Any

import pytest

from pgtasks.engine import drain
from pgtasks.engine.executor import Executor
from pgtasks.store import session, statements
from pgtasks.store.session import Statement
from tests.claims.helpers import ME, claim, rescan, until
from tests.claims.rig import Rig
from tests.database import Connection, rows, value


def _add(connection: Connection, count: int = 1, *, losses: int = 1, columns: str = "", values: str = "") -> list[int]:
    found = rows(
        connection,
        f"INSERT INTO pgtasks.tasks (name, losses{columns})"
        f" SELECT 't', %s{values} FROM generate_series(1, %s) n RETURNING id",
        losses,
        count,
    )
    return [task_id for (task_id,) in found]


def _claim(connection: Connection, limit: int, queue: str = "default") -> list[int]:
    statement = statements.claim_suspects(queue, limit=limit, names=["t"], worker_id=ME, lease_s=30)
    return [task.id for task in session.fetch_all(connection, statement)]


def test_ordinary_claims_leave_them(connection: Connection) -> None:
    """From the cursor and from the head; a claim of suspects takes nothing else."""
    (suspect,) = _add(connection)
    (innocent,) = _add(connection, losses=0)
    assert _claim(connection, 10) == [suspect]
    assert [task.id for task in claim(connection, 10)] == [innocent]
    (suspect,) = _add(connection)
    (innocent,) = _add(connection, losses=0)
    assert [(task.id, task.losses) for task in rescan(connection, 10)] == [(innocent, 0)]
    assert _claim(connection, 10) == [suspect]


def test_they_are_claimed_in_claim_order(connection: Connection) -> None:
    """Highest priority first, then by run_at; up to the limit, each with its number of losses."""
    (late,) = _add(connection, columns=", run_at", values=", clock_timestamp() - interval '1 min'")
    (early,) = _add(connection, columns=", run_at", values=", clock_timestamp() - interval '2 min'")
    (urgent,) = _add(connection, losses=3, columns=", priority", values=", 5")
    statement = statements.claim_suspects("default", limit=2, names=["t"], worker_id=ME, lease_s=30)
    found = {task.id: task.losses for task in session.fetch_all(connection, statement)}
    assert found == {urgent: 3, early: 1}
    assert _claim(connection, 2) == [late]


def test_only_what_may_run_is_claimed(connection: Connection) -> None:
    """Not before its time, not of another queue or name, not from a paused queue, not twice."""
    _add(connection, columns=", run_at", values=", clock_timestamp() + interval '1 h'")
    _add(connection, columns=", queue", values=", 'other'")
    rows(connection, "INSERT INTO pgtasks.tasks (name, losses) VALUES ('stranger', 1)")
    assert _claim(connection, 10) == []
    (waiting,) = _add(connection)
    rows(connection, "SELECT pgtasks.pause('default')")
    assert _claim(connection, 10) == []
    rows(connection, "SELECT pgtasks.resume('default')")
    assert _claim(connection, 10) == [waiting]
    assert _claim(connection, 10) == []


async def test_without_children_each_runs_alone(dsn: str, connection: Connection) -> None:
    """A worker that cannot start a process runs one at a time, and nothing beside it."""
    suspects = set(_add(connection, 3))
    async with Rig(dsn, concurrency=10, hold_s=0.1) as rig:
        await rig.ran(1)
        innocent = set(_add(connection, 20, losses=0))
        await rig.ran(23)
        await until(lambda: value(connection, "SELECT count(*) FROM pgtasks.history") == 23)
    ran = [(rig.started[task_id], task_id) for task_id in rig.order]
    beside = [(one, other) for at, one in ran for since, other in ran if one in suspects and 0 <= since - at < 0.1]
    assert all(one == other for one, other in beside), beside
    assert rig.peak > 1
    assert {task_id for _, task_id in ran} == suspects | innocent


async def test_a_sleeper_wakes_when_one_is_due(dsn: str, connection: Connection) -> None:
    """By the look before it sleeps, which sees the coming one, and by the bell for a new one."""
    (later,) = _add(connection, columns=", run_at", values=", clock_timestamp() + interval '1.5 s'")
    async with Rig(dsn) as rig:
        await rig.asleep()
        (now,) = _add(connection)
        await until(lambda: now in rig.started, 5.0)
        await until(lambda: later in rig.started, 10.0)
    assert rows(connection, "SELECT DISTINCT attempt FROM pgtasks.history") == [(1,)]


async def test_a_busy_worker_looks_for_them_once_a_second(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds one soon, and the other claims cost no further statement."""
    monkeypatch.setattr(Executor, "children_free", lambda _: 1)
    _add(connection, 4000, losses=0)
    rig = Rig(dsn, concurrency=10, hold_s=0.01)
    looks: list[float] = []
    real = rig.link.fetch_all

    async def fetch_all(statement: Statement[Any], *rest: Any) -> list[Any]:
        if "losses > 0" in statement.sql:
            looks.append(time.monotonic())
        return await real(statement, *rest)

    monkeypatch.setattr(rig.link, "fetch_all", fetch_all)
    async with rig:
        await rig.ran(200)
        (suspect,) = _add(connection)
        await until(lambda: suspect in rig.started, 5.0)
        assert len(rig.started) < 4000
        await rig.ran(1500)
    # The one that found it is followed by another at once, as there may be more.
    pairs = list(pairwise(looks))
    assert sum(later - earlier < 0.9 for earlier, later in pairs) <= 1, looks


async def test_none_is_claimed_while_no_child_is_free(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-06: neither suspects nor isolated tasks, while ordinary ones go on; then as many as there are children."""
    free = 0
    monkeypatch.setattr(Executor, "children_free", lambda _: free)
    suspects = _add(connection, 3)
    isolated = [task_id for (task_id,) in rows(connection, _ISOLATED)]
    async with Rig(dsn, "t", "isolated", isolated=["isolated"]) as rig:
        innocent = _add(connection, 5, losses=0)
        await until(lambda: set(rig.started) == set(innocent))
        await rig.asleep()
        assert set(rig.started) == set(innocent)
        assert value(connection, "SELECT max(attempt) FROM pgtasks.tasks") == 0
        free = 1
        rig.executor.slot_freed.set()
        await rig.ran(11)
        assert set(rig.started) == {*innocent, *suspects, *isolated}


async def test_a_drain_waits_for_a_child(dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """While none is free it does not end, as long as a suspect is due, and seldom asks; it ends when there is none."""
    free = 0
    monkeypatch.setattr(Executor, "children_free", lambda _: free)
    (suspect,) = _add(connection)
    asked: list[tuple[float, bool]] = []

    async def is_due(*given: Any) -> bool:
        asked.append((time.monotonic(), await real(*given)))
        return asked[-1][1]

    real = drain.is_due
    monkeypatch.setattr(drain, "is_due", is_due)
    async with Rig(dsn, drain=True) as rig:
        await until(lambda: len(asked) > 2)
        assert all(due for _, due in asked)
        assert all(later - earlier > 0.4 for (earlier, _), (later, _) in pairwise(asked)), asked
        assert not rig.stopping
        free = 1
        rig.executor.child_freed.set()
        await until(lambda: suspect in rig.started)
        free = 0
        await until(lambda: rig.stopping)
        assert asked[-1][1] is False
        assert not rig.claimer.gave_up


@pytest.mark.parametrize("due_in_min", [0, 60])
async def test_a_drain_without_children_gives_up(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, due_in_min: int
) -> None:
    """Once they do not start again and again; only if something is due for them, and all else is done before."""
    failing = False
    monkeypatch.setattr(Executor, "children_free", lambda _: 0)
    monkeypatch.setattr(Executor, "children_failing", property(lambda _: failing))
    _add(connection, columns=", run_at", values=f", clock_timestamp() + interval '{due_in_min} min'")
    innocent = _add(connection, 20, losses=0)
    async with Rig(dsn, drain=True, concurrency=2, hold_s=0.01) as rig:
        await rig.ran(1)
        failing = True
        rig.executor.child_freed.set()
        await until(lambda: rig.stopping)
        assert sorted(rig.started) == innocent
        assert rig.claimer.gave_up is (due_in_min == 0)


_ISOLATED = "INSERT INTO pgtasks.tasks (name) SELECT 'isolated' FROM generate_series(1, 3) RETURNING id"
