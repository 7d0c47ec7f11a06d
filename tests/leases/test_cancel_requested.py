"""A running task whose cancellation was requested ends as cancelled, however its attempt failed."""

from collections.abc import Callable, Sequence

import pytest

from tests.database import Connection, value
from tests.leases import steps
from tests.leases.steps import Handle

ENDS: dict[str, tuple[Callable[..., object], Sequence[str]]] = {
    "failed, to be tried again": (steps.retry, ["failed"]),
    "failed for good": (steps.bury, ["failed"]),
    "given back": (steps.release, []),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_requested_cancellation_wins(end: str, connection: Connection) -> None:
    """Nobody wants it any more: it is not run again, and it is no dead letter. How it failed is on record."""
    finish, recorded = ENDS[end]
    task_id, other = steps.enqueue(connection, 2)
    worker = steps.worker_id()
    tasks = steps.claim(connection, worker, 2)
    assert value(connection, "SELECT pgtasks.cancel(%s)", task_id) == "requested"
    finish(connection, worker, [Handle.of(task) for task in tasks], [tasks[0].lease_id])
    assert steps.status(connection, task_id) == "cancelled"
    assert steps.status(connection, other) != "cancelled"
    assert steps.outcomes(connection, task_id) == recorded
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0
