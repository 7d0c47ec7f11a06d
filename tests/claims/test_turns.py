"""Whose turn it is: child processes go round the queues, suspects first, and a task at rest waits for no other look."""

import time
from typing import Any

import pytest

from pgtasks.engine.executor import Executor
from pgtasks.store.session import Statement
from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.database import Connection, rows


def _add(connection: Connection, queue: str, count: int, *, name: str = "isolated", losses: int = 0) -> set[int]:
    insert = (
        "INSERT INTO pgtasks.tasks (name, queue, losses) SELECT %s, %s, %s FROM generate_series(1, %s) RETURNING id"
    )
    return {task_id for (task_id,) in rows(connection, insert, name, queue, losses, count)}


async def test_queues_of_isolated_tasks_take_turns(dsn: str, connection: Connection) -> None:
    """Two backlogs and one child: whichever way the rounds between two tasks are counted, none waits for the other."""
    first = _add(connection, "a", 15)
    _add(connection, "b", 15)
    # Without child processes there is one task at a time, as with one child.
    async with Rig(dsn, "isolated", isolated=["isolated"], queues="a,b", hold_s=0.005) as rig:
        await rig.ran(30)
        turns = "".join("a" if task_id in first else "b" for task_id in rig.order)
    assert turns in {"ab" * 15, "ba" * 15}


async def test_suspects_of_one_queue_come_before_isolated_tasks_of_another(dsn: str, connection: Connection) -> None:
    """One child: it is given to all suspects first."""
    _add(connection, "a", 5)
    _add(connection, "c", 5)
    suspects = _add(connection, "b", 5, losses=1)
    async with Rig(dsn, "isolated", isolated=["isolated"], queues="a,b,c", hold_s=0.005) as rig:
        await rig.ran(15)
        assert set(rig.order[:5]) == suspects


async def test_a_ring_is_answered_by_an_ordinary_claim(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look for suspects, due as it is, and the claim of isolated tasks come after it; all in the same round."""
    monkeypatch.setattr(Executor, "children_free", lambda _: 1)
    rig = Rig(dsn, "t", "isolated", isolated=["isolated"], queues="a,b")
    seen: list[str] = []
    real = rig.link.fetch_all

    async def fetch_all(statement: Statement[Any], *rest: Any) -> list[Any]:
        names, queue = statement.params.get("names"), statement.params.get("queue")
        kind = "suspects" if "losses > 0" in statement.sql else "ordinary" if names == ["t"] else "isolated"
        seen.append(f"{kind} {queue}")
        return await real(statement, *rest)

    async with rig:
        await rig.asleep()
        await until(lambda: time.monotonic() - rig.claimer.progress_at > 0.3, hint="it does not stop looking")
        # A look for suspects is due again.
        monkeypatch.setattr("pgtasks.engine.sources.SUSPECTS_S", 0.0)
        monkeypatch.setattr(rig.link, "fetch_all", fetch_all)
        _add(connection, "a", 1, name="t")
        await rig.ran(1)
        await until(lambda: len(set(seen)) == 6)
    order = [f"{kind} {queue}" for kind in ("ordinary", "suspects", "isolated") for queue in ("a", "b")]
    assert list(dict.fromkeys(seen)) == order


async def test_a_suspect_gets_the_slot_that_a_sleeper_waited_for(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker sleeps between the tasks of a queue of one slot; the next of them is not always an ordinary one."""
    monkeypatch.setattr(Executor, "children_free", lambda _: 1)
    monkeypatch.setattr("pgtasks.engine.sources.SUSPECTS_S", 0.2)
    _add(connection, "few", 20, name="t")
    async with Rig(dsn, queues="few:1,idle", hold_s=0.3) as rig:
        await rig.ran(1)
        (suspect,) = _add(connection, "few", 1, name="t", losses=1)
        await until(lambda: suspect in rig.started, 10.0)
        assert rig.order.index(suspect) <= 3
