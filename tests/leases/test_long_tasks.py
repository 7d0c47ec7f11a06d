"""L-04: a healthy task that runs for several leases is never run twice."""

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases.conftest import StartWorker
from tests.trace import Trace

LEASE_S = 1.5
LEFT = "SELECT min(extract(epoch FROM expires_at - clock_timestamp()))::float FROM pgtasks.leases"


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "count"), [("tick", 30), ("block", 1), ("spin", 2)])
def test_a_long_task_runs_once(
    name: str, count: int, connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """Async, blocking the handlers' loop, or busy in a thread: the lease is renewed in time all along."""
    a = start_worker(lease_s=LEASE_S).wait_ready()
    rows(
        connection,
        "SELECT pgtasks.enqueue(%s, jsonb_build_object('seconds', %s::float)) FROM generate_series(1, %s)",
        name,
        2.5 * LEASE_S,
        count,
    )
    wait_until(lambda: trace.marks("start", pid=a.pid))
    start_worker(lease_s=LEASE_S)
    left_s = []

    def finished() -> bool:
        left = value(connection, LEFT)
        left_s.append(LEASE_S if left is None else left)
        return bool(value(connection, "SELECT count(*) = %s FROM pgtasks.history", count))

    wait_until(finished, 20, 0.05)
    assert rows(connection, "SELECT * FROM pgtasks.attempts") == []
    assert len(trace.marks("start")) == count
    assert min(left_s) >= LEASE_S / 4, "a renewal came late"
