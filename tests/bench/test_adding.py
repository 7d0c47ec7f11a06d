"""The scenario of enqueueing measures every figure, and every task that it adds for a worker is run."""

from __future__ import annotations

import pytest

from bench import cpu, database
from bench.scenario import Plan
from bench.scenarios import enqueue
from tests.long import LONG

pytestmark = [pytest.mark.pg, pytest.mark.slow, pytest.mark.timeout(60)]
WITH_WORKERS = tuple(state for state in enqueue.STATES if state != "_alone")


@pytest.mark.parametrize("left_out", [WITH_WORKERS, pytest.param((), marks=LONG)])
def test_a_small_round_has_every_figure(left_out: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """In each state of the workers, with the trigger and without; it is on in the end."""
    for state in left_out:
        monkeypatch.delitem(enqueue.STATES, state)
    monkeypatch.setattr(enqueue, "SLICES", 1)
    with database.started() as bench:
        (figures,) = enqueue.measure(bench, Plan(tasks=400, rounds=1)).rounds
        switched = bench.value("SELECT tgenabled FROM pg_trigger WHERE tgname = 'tasks_inserted'")
    expected = [key.name for key in enqueue.KEYS if not key.name.endswith(tuple(f"16_producers{s}" for s in left_out))]
    assert not cpu.is_supported() or [name for name in expected if figures.get(name) is None] == []
    assert all(value is None or value > 0 for value in figures.values())
    assert switched == "O"
