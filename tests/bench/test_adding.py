"""The scenarios of enqueueing and of backlogs measure every figure, and lose no task."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import cpu, database, level
from bench.database import Bench
from bench.scenario import Outcome, Plan
from bench.scenarios import backlog, enqueue
from tests.long import LONG

pytestmark = [pytest.mark.pg, pytest.mark.slow, pytest.mark.timeout(60)]
COUNT = "SELECT count(*) FROM pgtasks.history"
WITH_WORKERS = tuple(state for state in enqueue.STATES if state != "_alone")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """A server to measure."""
    with database.started() as made:
        yield made


@pytest.mark.parametrize("left_out", [WITH_WORKERS, pytest.param((), marks=LONG)])
def test_a_small_round_has_every_figure(
    bench: Bench, left_out: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each state of the workers, with the trigger and without; it is on in the end."""
    for state in left_out:
        monkeypatch.delitem(enqueue.STATES, state)
    monkeypatch.setattr(enqueue, "SLICES", 1)
    outcome = Outcome()
    enqueue.measure(bench, Plan(tasks=400, rounds=1), outcome)
    (figures,) = outcome.rounds
    expected = [key.name for key in enqueue.KEYS if not key.name.endswith(tuple(f"16_producers{s}" for s in left_out))]
    assert not cpu.is_supported() or [name for name in expected if figures.get(name) is None] == []
    assert all(value is None or value > 0 for value in figures.values())
    assert bench.value("SELECT tgenabled FROM pg_trigger WHERE tgname = 'tasks_inserted'") == "O"


def test_a_queue_keeps_its_length_while_a_worker_runs(bench: Bench) -> None:
    """What is finished is added again, the figures are those of the span, and nothing is lost."""
    with level.made(bench, 2000) as queue:
        costs = queue.drain(2000, is_warm=True)
        left = queue.value("SELECT count(*) FROM pgtasks.tasks")
    assert 1000 <= left <= 3000
    assert costs.rate > 0
    assert not cpu.is_supported() or all(value is not None and value > 0 for value in costs[:-1])


def test_a_cold_run_reads_what_it_claims_from_outside_of_the_cache(bench: Bench) -> None:
    """All of the head and of the index above it, where a warm one finds it there."""

    def read(queue: level.Level, *, is_warm: bool) -> tuple[float, int]:
        """Give the blocks that a run read, and how many tasks it ran, those before and after its span included."""
        per_1000, done = queue.drain(5_000, is_warm=is_warm).blocks_read, queue.value(COUNT)
        return per_1000 * done / 1000, done

    with level.made(bench, 10_000) as queue:
        blocks = queue.value("SELECT pg_relation_size('pgtasks.tasks') / current_setting('block_size')::integer")
        (cold, done), (warm, _) = (read(queue, is_warm=is_warm) for is_warm in (False, True))
    # What is claimed after the first 10,000 was inserted meanwhile, and is in the cache.
    assert cold > 0.8 * blocks * min(1, done / 10_000)
    assert warm < cold / 2


def test_a_task_given_back_does_not_count_for_all_those_behind_it(bench: Bench) -> None:
    """It has the least id and stands at the end of the queue; only what is done is added again."""
    with level.made(bench, 3000) as queue:
        queue.connection.execute(
            "INSERT INTO pgtasks.tasks (id, name, run_at) OVERRIDING SYSTEM VALUE VALUES (-1000000, 'noop', now())"
        )
        queue.drain(2000, is_warm=False)
        left = queue.value("SELECT count(*) FROM pgtasks.tasks")
    assert 2000 <= left <= 4000


@LONG
def test_small_backlogs_have_every_figure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a round that goes up and one that goes down."""
    monkeypatch.setattr(backlog, "BACKLOGS", {"10k": 2000, "1m": 3000, "5m": 4000})
    outcome = Outcome()
    backlog.measure(bench, Plan(tasks=2000, rounds=2), outcome)
    assert not cpu.is_supported() or all(
        figures[key.name] is not None for figures in outcome.rounds for key in backlog.KEYS
    )
