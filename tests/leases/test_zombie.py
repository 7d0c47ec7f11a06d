"""L-02: a worker that was paused past its lease writes nothing about the task and goes on working."""

import signal

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.trace import Trace

pytestmark = pytest.mark.timeout(60)


def enqueue(connection: Connection, name: str, seconds: float) -> int:
    """Enqueue one of the handlers that take seconds."""
    task_id: int = value(
        connection, "SELECT pgtasks.enqueue(%s, jsonb_build_object('seconds', %s::float))", name, seconds
    )
    return task_id


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tick", "hold"])
def test_the_writes_of_a_paused_worker_are_refused(
    name: str, connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """A is stopped, B runs the task to its end, A wakes up: B's result stays, A loses the lease once."""
    a = start_worker().wait_ready()
    task_id = enqueue(connection, name, 1.0)
    wait_until(lambda: trace.marks("start", pid=a.pid))
    a.signal(signal.SIGSTOP)
    b = start_worker()
    wait_until(lambda: steps.status(connection, task_id) == "completed", 15)
    a.signal(signal.SIGCONT)
    a.wait_output("lease lost")
    assert rows(connection, "SELECT attempt, result FROM pgtasks.history WHERE id = %s", task_id) == [(2, b.pid)]
    assert steps.outcomes(connection, task_id) == ["worker_lost"]
    b.terminate()
    b.wait()
    another = enqueue(connection, "tick", 0.0)
    wait_until(lambda: steps.status(connection, another) == "completed")
    assert trace.marks("end", task_id=another, pid=a.pid), "the worker that lost a lease works no more"
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE id = %s", task_id) == 1
    assert a.output().count("lease lost") == 1, a.output()


@pytest.mark.slow
def test_a_worker_that_wakes_up_does_not_disturb_its_successor(
    connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """A wakes up while B still runs the task: B's run goes on and its result is the one kept."""
    a = start_worker().wait_ready()
    task_id = enqueue(connection, "tick", 6.0)
    wait_until(lambda: trace.marks("start", pid=a.pid))
    a.signal(signal.SIGSTOP)
    b = start_worker()
    wait_until(lambda: trace.marks("start", pid=b.pid), 15)
    a.signal(signal.SIGCONT)
    a.wait_output("lease lost")
    wait_until(lambda: steps.status(connection, task_id) == "completed", 15)
    assert [mark.pid for mark in trace.marks("end", task_id=task_id)] == [b.pid]
    assert trace.marks("cancelled", pid=a.pid), "the zombie's handler was not told"
    assert not trace.marks("cancelled", pid=b.pid)
    assert value(connection, "SELECT result FROM pgtasks.history WHERE id = %s", task_id) == b.pid
