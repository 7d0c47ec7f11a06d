"""What a batch carries for each task goes to that task: its place in the arrays is found by its id."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pgtasks.outcome import Cancelled, Completed, Dead, Failure, RetryIn
from pgtasks.store import statements
from pgtasks.store.session import Statement
from pgtasks.store.statements import Ended
from tests.database import Connection, rows
from tests.leases import steps

COUNT = 12
ME = steps.worker_id()
Make = Callable[[Sequence[Ended], Sequence[int]], Statement[Any]]

# Each writes the number it is given for a task to the column that is read back.
KINDS: dict[str, tuple[Make, str]] = {
    "complete": (
        lambda ended, marks: statements.complete(ME, ended, [Completed(str(mark)) for mark in marks], []),
        "SELECT id, result::text::integer FROM pgtasks.history",
    ),
    "note": (
        lambda ended, marks: statements.complete(ME, ended, [Completed(None, str(mark)) for mark in marks], []),
        "SELECT id, error::integer FROM pgtasks.history",
    ),
    "retry": (
        lambda ended, marks: statements.retry(
            ME, ended, [RetryIn(3600.0 * mark, Failure("E", str(mark), "")) for mark in marks], []
        ),
        (
            "SELECT t.id, a.error::integer FROM pgtasks.tasks t JOIN pgtasks.attempts a ON a.task_id = t.id"
            " WHERE round(extract(epoch FROM t.run_at - clock_timestamp()) / 3600) = a.error::integer"
        ),
    ),
    "bury": (
        lambda ended, marks: statements.bury(
            ME, ended, [Dead("permanent", Failure("E", str(mark), "")) for mark in marks], []
        ),
        (
            "SELECT d.id, d.error::integer FROM pgtasks.dead_letters d JOIN pgtasks.attempts a ON a.task_id = d.id"
            " AND a.error = d.error"
        ),
    ),
    "cancelled": (
        lambda ended, marks: statements.cancelled(ME, ended, [Cancelled(str(mark)) for mark in marks], []),
        "SELECT id, error::integer FROM pgtasks.history",
    ),
    "release": (
        lambda ended, marks: statements.release(ME, ended, [3600.0 * mark for mark in marks], []),
        (
            "SELECT id, round(extract(epoch FROM run_at - clock_timestamp()) / 3600)::integer FROM pgtasks.tasks"
            " WHERE state = 'queued'"
        ),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_task_gets_its_own(connection: Connection, kind: str) -> None:
    """Also where others of the batch are gone, or were given back and claimed again by the same worker."""
    make, read = KINDS[kind]
    ids = steps.enqueue(connection, COUNT)
    first = [(task.id, task.lease_id) for task in steps.claim(connection, ME, COUNT)]
    back, gone = ids[1::4], ids[2::4]
    assert steps.release(connection, ME, [handle for handle in first if handle[0] in back]).ids is None
    again = [(task.id, task.lease_id) for task in steps.claim(connection, ME, COUNT)]
    assert sorted(task_id for task_id, _ in again) == back
    connection.execute("DELETE FROM pgtasks.tasks WHERE id = ANY(%s)", (gone,))
    ended = sorted(first + again)
    moved = steps.fetch(connection, make(ended, range(1, len(ended) + 1)))
    assert sorted(moved.ids) == sorted(set(ids) - set(gone))
    # The later one of two leases is the one that counts.
    expected = {task_id: place for place, (task_id, _) in enumerate(ended, 1) if task_id not in gone}
    assert dict(rows(connection, read)) == expected
