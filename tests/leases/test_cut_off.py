"""L-09: a worker that is cut off from the database stops its handlers before the lease ends."""

import signal

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.proxy import Proxy
from tests.trace import Trace

LEASE_S = 2.0


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("fault", ["black hole", "cut and refused"])
def test_a_handler_stops_before_its_successor_starts(
    fault: str, dsn: str, connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """Two runs of a task never overlap, and the late outcome of the first is refused."""
    with Proxy(dsn) as proxy:
        a = start_worker(address=proxy.dsn, lease_s=LEASE_S).wait_ready()
        b = start_worker(lease_s=LEASE_S)
        b.wait_output("worker started")
        # Ready, but not before the other has begun: starting takes longer than the handler runs on a busy machine.
        b.signal(signal.SIGSTOP)
        task_id = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 3}')""")
        wait_until(lambda: trace.marks("start", pid=a.pid))
        if fault == "black hole":
            proxy.black_hole()
        else:
            proxy.refuse = True
            proxy.cut()
        b.signal(signal.SIGCONT)
        wait_until(lambda: steps.status(connection, task_id) == "completed", 20)
        proxy.refuse = False
        proxy.heal()
        b.terminate()
        b.wait()
        value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 0}')""")
        wait_until(lambda: trace.marks("end", pid=a.pid), 15, hint="the worker did not come back")
    runs = trace.marks(task_id=task_id)
    old, new = [mark for mark in runs if mark.pid == a.pid], [mark for mark in runs if mark.pid != a.pid]
    assert old[-1].event == "cancelled"
    assert old[-1].at < new[0].at, "the two runs overlap"
    assert old[-1].at - old[0].at >= LEASE_S / 3, "the handler was stopped although its lease was good"
    assert [mark.attempt for mark in (old[0], new[0])] == [1, 2]
    assert rows(connection, "SELECT attempt, status FROM pgtasks.history WHERE id = %s", task_id) == [(2, "completed")]
