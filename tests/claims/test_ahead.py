"""A worker that is busy itself claims half of its slots at a time, and the next half before the first one runs."""

import time
from typing import Any

import pytest

from pgtasks.engine import ahead
from pgtasks.engine.ahead import SLOTS_MIN, WINDOW_S, Ahead
from pgtasks.store.session import Statement
from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.database import Connection, value


class Clocks:
    """The wall clock and the process's CPU, by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.cpu_s = 100.0, 7.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "process_time", lambda: self.cpu_s)

    def spend(self, seconds: float, busy: float) -> None:
        """Let time pass, of which the process used a part."""
        self.now += seconds
        self.cpu_s += seconds * busy


def test_half_while_the_process_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than half of the time, over a window; also with several threads on several cores."""
    clocks = Clocks(monkeypatch)
    one = Ahead(501)
    assert (one.most(), one.on) == (501, False)
    for busy, most in ((0.9, 251), (0.6, 251), (0.4, 501), (0.0, 501), (3.0, 251)):
        clocks.spend(WINDOW_S, busy)
        assert one.most() == most
        assert one.on == (most == 251)


def test_a_moment_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the whole window that counts, and an idle worker's is as long as it was idle."""
    clocks = Clocks(monkeypatch)
    one = Ahead(500)
    clocks.spend(WINDOW_S / 2, 1.0)
    assert one.most() == 500
    clocks.spend(WINDOW_S, 0.0)
    assert one.most() == 500
    clocks.spend(WINDOW_S, 1.0)
    assert one.most() == 250
    clocks.spend(60.0, 0.01)
    assert one.most() == 500


def test_few_slots_are_filled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the process does."""
    clocks = Clocks(monkeypatch)
    few, enough = Ahead(SLOTS_MIN - 1), Ahead(SLOTS_MIN)
    clocks.spend(1.0, 1.0)
    assert few.most() == SLOTS_MIN - 1
    assert not few.on
    assert enough.most() == SLOTS_MIN / 2


@pytest.mark.parametrize("busy", [True, False])
async def test_the_next_claim_is_sent_before_what_the_last_one_brought_runs(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    """So that the database works while handlers do; what nothing follows starts at once."""
    monkeypatch.setattr(ahead, "WINDOW_S", 0.0)
    monkeypatch.setattr(ahead, "BUSY_MIN", -1.0 if busy else 1e9)
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, 700)")
    steps: list[str] = []
    rig = Rig(dsn, concurrency=200)
    async with rig:
        real_fetch, real_begin = rig.link.fetch_all, rig.executor._begin  # noqa: SLF001 - where handlers begin

        async def fetch_all(statement: Statement[Any], *rest: Any) -> list[Any]:
            if "INSERT INTO pgtasks.leases" in statement.sql and "losses > 0" not in statement.sql:
                steps.append(f"claim {statement.params['limit']}")
            return await real_fetch(statement, *rest)

        def begin(queue: str, tasks: list[Any]) -> None:
            steps.append(f"begin {len(tasks)}")
            real_begin(queue, tasks)

        monkeypatch.setattr(rig.link, "fetch_all", fetch_all)
        monkeypatch.setattr(rig.executor, "_begin", begin)
        await until(lambda: len(rig.order) == 700, hint="they do not all run")
        await until(lambda: not value(connection, "SELECT count(*) FROM pgtasks.tasks"), hint="not all are written")
    assert len(set(rig.order)) == 700
    assert rig.peak <= 200
    begun = [number for number, step in enumerate(steps) if step.startswith("begin")]
    largest = max(int(steps[number].split()[1]) for number in begun)
    # Where two claims were sent in a row, the second overtook what the first had brought.
    overtaken = [number for number in begun if [step[:5] for step in steps[number - 2 : number]] == ["claim"] * 2]
    if busy:
        assert largest == 100
        assert overtaken, steps
    else:
        assert largest > 100
        assert not overtaken, steps


async def test_what_awaits_a_child_starts_at_once(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The children are counted by what has begun: two queues must not both be given the same ones."""
    monkeypatch.setattr(ahead, "WINDOW_S", 0.0)
    monkeypatch.setattr(ahead, "BUSY_MIN", -1.0)
    children = 4
    for queue in ("a", "b"):
        connection.execute(
            "INSERT INTO pgtasks.tasks (name, queue) SELECT 'alone', %s FROM generate_series(1, 30)", (queue,)
        )
    rig = Rig(dsn, "t", "alone", queues="a,b", isolated=["alone"], concurrency=200, hold_s=0.01)
    async with rig:
        monkeypatch.setattr(rig.executor, "children_free", lambda: children - len(rig.executor.held()))
        await until(lambda: len(rig.order) == 60, hint="they do not all run")
    assert rig.peak == children
