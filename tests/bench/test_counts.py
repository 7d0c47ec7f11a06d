"""What a drain costs in statements, commits, rows and WAL: counts that no slow machine changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.bench.counting import Cost, Rows, difference, no_sessions, read
from tests.database import rows, value, wait_until
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.pg, pytest.mark.slow, pytest.mark.timeout(60)]

TASKS = 20_000
CONCURRENCY = 500
# What a worker asks at its start and its end, and while it falls silent, whatever the number of tasks.
STATEMENTS_BESIDES = 60


@pytest.fixture(scope="module")
def cost(server: Any) -> Iterator[Cost]:
    """What one worker's drain of a full queue cost."""
    dsn = server.create(migrated=True)
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows(connection, "INSERT INTO pgtasks.tasks (name) SELECT 'noop' FROM generate_series(1, %s)", TASKS)
        rows(connection, "VACUUM (ANALYZE) pgtasks.tasks")
        before = read(connection)
        with WorkerProcess("bench.app:app", dsn, "--drain", "--concurrency", str(CONCURRENCY)) as worker:
            assert worker.wait(50) == 0, worker.output()
        wait_until(lambda: no_sessions(connection))
        after = read(connection)
        assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'") == TASKS
    yield difference(before, after)
    server.drop(dsn)


def test_every_row_is_written_once_per_step(cost: Cost) -> None:
    """A task is updated by its claim, deleted and put into history by its completion, and no more."""
    tasks, history = cost.tables["tasks"], cost.tables["history"]
    assert (tasks.inserted, tasks.updated, tasks.deleted) == (0, TASKS, TASKS)
    assert (history.inserted, history.updated, history.deleted) == (TASKS, 0, 0)
    assert cost.tables["attempts"] == cost.tables["dead_letters"] == Rows(0, 0, 0, 0)


def test_a_claim_touches_no_index(cost: Cost) -> None:
    """Claims are heap-only updates."""
    assert cost.tables["tasks"].hot / cost.tables["tasks"].updated >= 0.95


def test_a_batch_has_one_lease(cost: Cost) -> None:
    """A lease is one row per claimed batch, deleted with its last task."""
    leases = cost.tables["leases"]
    assert TASKS / CONCURRENCY <= leases.inserted <= TASKS * 0.01
    assert leases.deleted == leases.inserted


def test_round_trips_are_shared_by_batches(cost: Cost) -> None:
    """Each statement is a transaction of its own, so commits count the round trips: 0.02 per task at most."""
    assert cost.commits <= TASKS * 0.02
    assert cost.rollbacks == 0


def test_a_batch_costs_one_claim_and_few_completions(cost: Cost) -> None:
    """There are no statements besides claims, completions and a fixed number of others."""
    assert cost.commits <= 4 * cost.tables["leases"].inserted + STATEMENTS_BESIDES


def test_the_log_grows_by_less_than_800_bytes_per_task(cost: Cost) -> None:
    """From claim to history, without the page images that follow a checkpoint."""
    assert cost.wal_bytes / TASKS <= 800
