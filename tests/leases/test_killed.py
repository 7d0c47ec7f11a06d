"""What a killed worker leaves behind is run again within lease and sweep (acceptance 5, L-03, L-05)."""

import time

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.trace import Trace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
SLACK_S = 1.0  # What a busy machine adds to a number of seconds that the settings promise.


def test_tasks_of_a_killed_worker_run_again(connection: Connection, start_worker: StartWorker, trace: Trace) -> None:
    """SIGKILL with 20 running tasks, lease 3 s: all start again within lease and sweep, as attempt 2."""
    lease_s, sweep_s = 3.0, 0.5
    a = start_worker("--concurrency=20", lease_s=lease_s, sweep_s=sweep_s)
    rows(
        connection,
        "SELECT pgtasks.enqueue('tick', jsonb_build_object('seconds', 60)) FROM generate_series(1, 20) n",
    )
    wait_until(lambda: len(trace.marks("start", pid=a.pid)) == 20)
    start_worker("--concurrency=20", lease_s=lease_s, sweep_s=sweep_s).wait_output("worker started")
    a.kill()
    killed_at = time.monotonic()
    wait_until(lambda: len(trace.marks("start")) == 40, 15)
    again = trace.marks("start")[20:]
    assert max(mark.at for mark in again) - killed_at <= lease_s + sweep_s + SLACK_S
    assert {mark.attempt for mark in again} == {2}
    assert {mark.pid for mark in again}.isdisjoint({a.pid})
    assert value(connection, "SELECT count(*) FROM pgtasks.all_tasks WHERE status = 'running' AND attempt = 2") == 20


def test_tasks_are_recovered_by_their_lease_alone(
    connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """L-03: no row of the worker, or another worker's id in the lease, keeps a task from being run again."""
    a = start_worker()
    for _ in range(3):
        rows(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 60}')""")
    wait_until(lambda: len(trace.marks("start")) == 3)
    a.kill()
    rows(connection, "DELETE FROM pgtasks.workers")
    rows(connection, "UPDATE pgtasks.leases SET worker_id = gen_random_uuid()")
    start_worker()
    wait_until(lambda: len(trace.marks("start")) == 6, 15)
    assert {mark.attempt for mark in trace.marks("start")[3:]} == {2}


@pytest.mark.parametrize("how", ["exit", "kill", "segfault"])
def test_a_task_that_kills_its_worker_ends_as_a_dead_letter(
    how: str, connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """L-05: it starts exactly max_attempts times, with the worker restarted each time; its neighbours succeed."""
    task_id = value(
        connection,
        "SELECT pgtasks.enqueue('crash', jsonb_build_object('how', %s::text), max_attempts => 2)",
        how,
    )
    neighbours = [
        value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 1.2}', max_attempts => 5)""") for _ in range(3)
    ]
    worker = start_worker(lease_s=1.0)

    def finished() -> bool:
        nonlocal worker
        if not worker.running:
            worker = start_worker(lease_s=1.0)
        return steps.status(connection, task_id) == "dead" and all(
            steps.status(connection, one) == "completed" for one in neighbours
        )

    wait_until(finished, 40)
    assert len(trace.marks("start", task_id=task_id)) == 2
    assert steps.outcomes(connection, task_id) == ["worker_lost", "worker_lost"]
    ((reason, attempt, error),) = rows(
        connection, "SELECT reason, attempt, error FROM pgtasks.dead_letters WHERE id = %s", task_id
    )
    assert (reason, attempt) == ("worker_lost", 2)
    assert "lease expired" in error
    assert worker.running
