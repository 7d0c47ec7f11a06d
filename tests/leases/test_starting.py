"""L-08: a worker that starts, and crashes, and starts again takes nothing from its siblings."""

import pytest

from tests.database import Connection, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.trace import Trace


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_starting_worker_leaves_live_tasks_alone(
    connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """A runs a task for longer than its lease while B starts five times and is killed each time."""
    a = start_worker(lease_s=1.0).wait_ready()
    task_id = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 5}')""")
    wait_until(lambda: trace.marks("start"))
    for _ in range(5):
        b = start_worker(lease_s=1.0)
        b.wait_output("worker started")
        b.kill()
    wait_until(lambda: steps.status(connection, task_id) == "completed", 15)
    assert [mark.pid for mark in trace.marks("start")] == [a.pid]
    assert steps.outcomes(connection, task_id) == []
