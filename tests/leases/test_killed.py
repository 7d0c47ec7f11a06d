"""What a killed worker leaves behind is run again within lease and sweep (acceptance 5, L-03)."""

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases.conftest import StartWorker
from tests.trace import Trace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
SLACK_S = 1.0  # What a busy machine adds to a number of seconds that the settings promise.


def test_tasks_of_a_killed_worker_run_again(connection: Connection, start_worker: StartWorker, trace: Trace) -> None:
    """SIGKILL with 20 running tasks, lease 3 s: all are due again within lease and sweep, and run as attempt 2."""
    lease_s, sweep_s = 3.0, 0.5
    a = start_worker("--concurrency=20", lease_s=lease_s, sweep_s=sweep_s)
    rows(connection, "SELECT pgtasks.enqueue('once') FROM generate_series(1, 20) n")
    wait_until(lambda: len(trace.marks("start", pid=a.pid)) == 20)
    start_worker("--concurrency=20", lease_s=lease_s, sweep_s=sweep_s).wait_output("worker started")
    killed_at = value(connection, "SELECT clock_timestamp()")
    a.kill()
    wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.history") == 20, 30)
    swept_s = value(
        connection, "SELECT extract(EPOCH FROM max(finished_at) - %s)::float FROM pgtasks.attempts", killed_at
    )
    assert swept_s <= lease_s + sweep_s + SLACK_S
    again = trace.marks("start")[20:]
    assert len(again) == 20
    assert {mark.attempt for mark in again} == {2}
    assert {mark.pid for mark in again}.isdisjoint({a.pid})


def test_tasks_are_recovered_by_their_lease_alone(
    connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """L-03: no row of the worker, or another worker's id in the lease, keeps a task from being run again."""
    a = start_worker()
    rows(connection, "SELECT pgtasks.enqueue('once') FROM generate_series(1, 3) n")
    wait_until(lambda: len(trace.marks("start")) == 3)
    a.kill()
    rows(connection, "DELETE FROM pgtasks.workers")
    rows(connection, "UPDATE pgtasks.leases SET worker_id = gen_random_uuid()")
    start_worker()
    wait_until(lambda: len(trace.marks("start")) == 6, 15)
    assert {mark.attempt for mark in trace.marks("start")[3:]} == {2}
