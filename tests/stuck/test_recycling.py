"""R-06: a worker whose slots are stuck starts afresh, under the same process id, and nobody else pays."""

from pathlib import Path

from tests.database import rows, value, wait_until
from tests.handlers.conftest import Tasks
from tests.stuck.conftest import StartWorker

GUILTY = ("never_ends", "never_yields")
CHARGED = "SELECT t.name, a.outcome FROM pgtasks.attempts a JOIN pgtasks.all_tasks t ON t.id = a.task_id"
BUSY = "SELECT coalesce(max(busy), 0) FROM pgtasks.workers"


def test_a_hundred_others_finish_and_the_guilty_end_dead(tasks: Tasks, worker: StartWorker) -> None:
    """Concurrency 2, a thread and a coroutine that never end, each on two attempts."""
    guilty = [tasks.add(name) for name in GUILTY]
    others = [tasks.add("fine" if number % 2 else "afine") for number in range(100)]
    most = 0
    with worker("--concurrency", "2", "--shutdown-grace", "1") as started:
        pid = started.wait_ready().pid

        def all_ended() -> bool:
            nonlocal most
            most = max(most, value(tasks.connection, BUSY))
            return not tasks.left_count()

        wait_until(all_ended, 60, hint=lambda: f"{tasks.left()}\n{started.output()}")
        assert started.running
        assert started.output().count(f"pid={pid}") == started.output().count("worker recycling") >= 2
        environ = Path(f"/proc/{pid}/environ")
        if environ.exists():
            # What the worker put there for its handlers is not handed on.
            assert b"PGTASKS_POOLER" not in environ.read_bytes()
        started.terminate()
        assert started.wait() == 0, started.output()
    for task_id in guilty:
        assert tasks.dead(task_id) == ("exhausted", 2, "ran longer than its timeout of 0.4 s")
    assert sorted(rows(tasks.connection, CHARGED)) == sorted((name, "timed_out") for name in GUILTY * 2)
    assert {tasks.status(task_id) for task_id in others} == {"completed"}
    assert most <= 2


def test_a_signal_ends_a_worker_that_is_recycling(tasks: Tasks, worker: StartWorker) -> None:
    """The stop is an ordinary one then, with the grace time for those that work."""
    tasks.add("never_ends", max_attempts=1)
    with worker("--concurrency", "2") as started:
        working = tasks.add("afine", {"seconds": 2.5})
        started.wait_output("worker recycling")
        started.terminate()
        assert started.wait() == 0, started.output()
        assert started.output().count("worker started") == 1
    assert tasks.status(working) == "completed"
