"""When a sleeper has to look again: the next due time of what it can run."""

import pytest

from pgtasks.store import session, statements
from tests.database import Connection


def _due_in(connection: Connection, *queues: str) -> float | None:
    return session.fetch_one(connection, statements.due_in(queues or ("default",), ["t"]))


def _insert(connection: Connection, name: str, *delays_s: float, queue: str = "default", priority: int = 0) -> None:
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, queue, priority, run_at)"
        " SELECT %s, %s, %s, clock_timestamp() + make_interval(secs => d) FROM unnest(%s::float8[]) d",
        (name, queue, priority, list(delays_s)),
    )


def test_nothing_waits(connection: Connection) -> None:
    """Neither an empty queue nor tasks that are due or running have a next due time."""
    assert _due_in(connection) is None
    _insert(connection, "t", -5, -1)
    assert _due_in(connection) is None


def test_the_earliest_over_queues_and_priorities(connection: Connection) -> None:
    """Of the asked queues only, in the lowest priority as well."""
    _insert(connection, "t", 300, 200)
    _insert(connection, "t", 100, queue="b", priority=-7)
    _insert(connection, "t", 10, queue="c", priority=3)
    assert _due_in(connection, "default") == pytest.approx(200, abs=2)
    assert _due_in(connection, "default", "b") == pytest.approx(100, abs=2)


def test_tasks_that_cannot_run_here_are_passed_over_in_steps(connection: Connection) -> None:
    """A few are seen through; of many, the twentieth says when to look again, not the first."""
    _insert(connection, "stranger", *range(100, 110))
    assert _due_in(connection) is None
    _insert(connection, "t", 200)
    assert _due_in(connection) == pytest.approx(200, abs=2)
    _insert(connection, "stranger", *range(110, 150))
    assert _due_in(connection) == pytest.approx(119, abs=2)


def test_a_paused_queue_wakes_nobody(connection: Connection) -> None:
    """Resuming it rings."""
    _insert(connection, "t", 100)
    connection.execute("SELECT pgtasks.pause('default')")
    assert _due_in(connection) is None
