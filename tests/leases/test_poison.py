"""L-05: a task that kills its process takes others down with it once, and is then found out in a child."""

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.trace import Trace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
HOWS = {
    "exit": "its process exited with code 7",
    "kill": "its process was killed by SIGKILL (9)",
    "segfault": "its process was killed by SIGSEGV (11)",
    "memory": "its process was killed by SIGSEGV (11)",
}


@pytest.mark.parametrize("how", HOWS)
def test_bystanders_lose_one_attempt_and_the_guilty_is_named(
    how: str, connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """19 beside a task that kills the worker: each starts twice, the guilty as often as it may; one worker dies."""
    flags = {"lease_s": 1.0, "env": {"PGTASKS_CHILDREN": "2"}}
    rows(connection, "SELECT pgtasks.enqueue('once', max_attempts => 5) FROM generate_series(1, 19) n")
    workers = [start_worker("--concurrency=20", **flags)]
    wait_until(lambda: len(trace.marks("start")) == 19, 15)
    guilty = value(
        connection, "SELECT pgtasks.enqueue('crash', jsonb_build_object('how', %s::text), max_attempts => 3)", how
    )

    def finished() -> bool:
        if not workers[-1].running:
            workers.append(start_worker("--concurrency=20", **flags))
        done = value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'")
        return steps.status(connection, guilty) == "dead" and done == 19

    wait_until(finished, 60, hint=workers[-1].output)
    assert len(workers) == 2, "it killed a worker again"
    assert workers[-1].running
    assert [mark.attempt for mark in trace.marks("start", task_id=guilty)] == [1, 2, 3]
    others = [mark.task_id for mark in trace.marks("start") if mark.task_id != guilty]
    assert {others.count(task_id) for task_id in others} == {2}
    assert steps.outcomes(connection, guilty) == ["worker_lost"] * 3
    ((reason, attempt, error, kind, is_known),) = rows(
        connection,
        "SELECT reason, attempt, error, error_class, lease_id > 0 AND worker_id IN (SELECT id FROM pgtasks.workers)"
        " FROM pgtasks.dead_letters WHERE id = %s",
        guilty,
    )
    assert (reason, attempt, kind, is_known) == ("worker_lost", 3, "pgtasks.errors.ProcessDied", True)
    assert error == HOWS[how]


def test_a_drain_ends_after_the_suspects(connection: Connection, start_worker: StartWorker) -> None:
    """Also when the one child it may have dies meanwhile: none is left behind."""
    add = "INSERT INTO pgtasks.tasks (name, payload, attempt, losses, max_attempts) VALUES (%s, %s, %s, 1, %s)"
    for _ in range(2):
        rows(connection, add, "once", "{}", 1, 5)
        rows(connection, add, "crash", '{"how": "kill"}', 0, 1)
        rows(connection, add, "once", "{}", 1, 5)
    worker = start_worker("--drain", "--children=1")
    assert worker.wait(60) == 0
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'") == 4
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters WHERE reason = 'worker_lost'") == 2
