"""S-01: SIGTERM ends claiming, lets running tasks finish, and gives the rest back."""

import os
import signal
import subprocess
import time

import pytest

from tests.database import rows, value, wait_until
from tests.handlers.conftest import APP, Tasks
from tests.shutdown.conftest import Exit
from tests.workers import WorkerProcess, environment, program


def begin(tasks: Tasks, worker: WorkerProcess, name: str, count: int, payload: dict[str, object]) -> list[int]:
    """Add tasks and wait until each has begun."""
    worker.wait_ready()
    added = [tasks.add(name, payload) for _ in range(count)]
    for task_id in added:
        tasks.wait_note(task_id, "begun")
    return added


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_running_tasks_finish_and_no_other_starts(tasks: Tasks, number: signal.Signals) -> None:
    """S-01: four of 1.5 s run to their end, a hundred wait for others, exit 0 when the four are done."""
    with tasks.worker("--concurrency", "4", "--shutdown-grace", "10") as worker:
        running = begin(tasks, worker, "holds", 2, {"seconds": 1.5}) + begin(
            tasks, worker, "holds_sync", 2, {"seconds": 1.5}
        )
        waiting = [tasks.add("fine") for _ in range(100)]
        since = time.monotonic()
        worker.signal(number)
        ended = Exit(worker, since)
    assert ended.code == 0
    assert ended.after_s < 3
    assert ended.quiet(), ended.printed
    assert [tasks.status(task_id) for task_id in running] == ["completed"] * 4
    assert rows(tasks.connection, "SELECT DISTINCT state, attempt FROM pgtasks.tasks") == [("queued", 0)]
    assert len(tasks.left()) == len(waiting)
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.workers") == 0
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.leases") == 0


def test_a_worker_that_stops_says_so_at_once(tasks: Tasks) -> None:
    """Not with its next heartbeat, which may be 200 s away with this lease."""
    with tasks.worker("--lease", "600", "--shutdown-grace", "60") as worker:
        begin(tasks, worker, "holds", 1, {"seconds": 60})
        worker.terminate()
        draining = "SELECT draining FROM pgtasks.workers"
        wait_until(lambda: value(tasks.connection, draining), 15, hint=worker.output)


def test_at_the_deadline_tasks_are_given_back_uncharged(tasks: Tasks) -> None:
    """S-01: async, sync, and one that turns its cancellation into an error; at once, no attempt, exit in time."""
    with tasks.worker("--shutdown-grace", "1") as worker:
        kinds: list[tuple[str, dict[str, object]]] = [
            ("holds", {"seconds": 60}),
            ("holds_sync", {"seconds": 60}),
            ("fails_when_stopped", {}),
        ]
        running = [task_id for name, payload in kinds for task_id in begin(tasks, worker, name, 2, payload)]
        since = time.monotonic()
        worker.terminate()
        ended = Exit(worker, since)
    assert ended.code == 0
    assert 1 <= ended.after_s < 2
    assert ended.quiet(), ended.printed
    assert rows(tasks.connection, "SELECT id, state, attempt, lease_id FROM pgtasks.tasks ORDER BY id") == [
        (task_id, "queued", 0, None) for task_id in running
    ]
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.attempts") == 0
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.leases") == 0


def test_handlers_that_ignore_the_stop_do_not_keep_the_process(tasks: Tasks) -> None:
    """S-01, R-06: deaf ones on the loop, in a thread, a blocked loop, and a thread that Python would wait for."""
    with tasks.worker("--shutdown-grace", "0.5") as worker:
        deaf = begin(tasks, worker, "deaf_sync", 1, {}) + begin(tasks, worker, "deaf", 1, {})
        thread = tasks.add("waits_for_a_thread", {"seconds": 30})
        tasks.wait_status(thread, "running")
        blocking = tasks.add("blocks", {"seconds": 30})
        tasks.wait_status(blocking, "running")
        since = time.monotonic()
        worker.terminate()
        ended = Exit(worker, since)
    assert ended.code == 0
    assert ended.after_s < 1.5
    assert {tasks.status(task_id) for task_id in (thread, blocking)} == {"queued"}
    assert not {tasks.status(task_id) for task_id in deaf} & {"running"}


def test_what_a_claim_still_brings_is_given_back(tasks: Tasks) -> None:
    """Claimed in the moment of the stop, under load: nobody starts late, nothing stays leased."""
    tasks.connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 'nothing' FROM generate_series(1, 30000)")
    with tasks.worker("--concurrency", "50") as worker:
        wait_until(lambda: value(tasks.connection, "SELECT count(*) > 500 FROM pgtasks.history"))
        since = time.monotonic()
        worker.terminate()
        ended = Exit(worker, since)
    assert ended.code == 0
    assert ended.after_s < 1
    assert rows(tasks.connection, "SELECT DISTINCT state, attempt FROM pgtasks.tasks") == [("queued", 0)]
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.leases") == 0


def test_a_process_group_leader_with_python_as_process_1_would_be_stops_cleanly(tasks: Tasks) -> None:
    """S-02: in its own session, without a terminal, with standard input closed; children it forked do not matter."""
    command = [program(), "worker", APP]
    variables = environment(tasks.dsn, "worker", PGTASKS_TEST_RELEASE=str(tasks.release))
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            task_id = tasks.add("holds", {"seconds": 0.5})
            tasks.wait_note(task_id, "begun")
            os.killpg(process.pid, signal.SIGTERM)
            _, printed = process.communicate(timeout=10)
        finally:
            process.kill()
    assert process.returncode == 0, printed
    assert tasks.status(task_id) == "completed"


def test_a_child_that_a_handler_forked_can_be_terminated_without_stopping_the_worker(tasks: Tasks) -> None:
    """Signals of a child are not the worker's, and the child heeds them."""
    with tasks.worker() as worker:
        task_id = tasks.add("terminates_children")
        tasks.wait_status(task_id, "completed")
        assert value(tasks.connection, "SELECT result FROM pgtasks.history") == [-signal.SIGTERM, 7]
        tasks.wait_status(tasks.add("fine"), "completed")
        assert "signal received" not in worker.output()
        worker.terminate()
        assert worker.wait() == 0


def test_a_worker_does_not_wait_for_a_second_after_its_last_task(tasks: Tasks) -> None:
    """An idle worker leaves at once."""
    with tasks.worker() as worker:
        worker.wait_ready()
        since = time.monotonic()
        worker.terminate()
        ended = Exit(worker, since)
    assert (ended.code, ended.quiet()) == (0, True)
    assert ended.after_s < 0.8
