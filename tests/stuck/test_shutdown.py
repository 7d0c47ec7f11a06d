"""S-01, S-02, R-06: a stop meets its deadline whatever handlers do; a process that stands still loses its leases."""

import time

from tests.database import rows, value, wait_until
from tests.handlers.conftest import Tasks
from tests.shutdown.conftest import Exit
from tests.stuck.conftest import StartWorker

STUCK = "SELECT coalesce(max(stuck), 0) FROM pgtasks.workers"
HELD = "SELECT count(*) FROM pgtasks.tasks WHERE state = 'running'"


def test_a_stop_with_stuck_handlers_meets_its_deadline(tasks: Tasks, worker: StartWorker) -> None:
    """A thread, a coroutine that swallows its cancellation, a blocked loop; the worker says how many are stuck."""
    added = [tasks.add(name, max_attempts=1) for name in ("never_ends", "swallows")]
    with worker("--lease", "1", "--stuck-max", "0", "--shutdown-grace", "1") as started:
        for task_id in added:
            tasks.wait_status(task_id, "dead")
        blocking = tasks.add("never_yields", timeout="60 s")
        started.wait_output("handlers' loop is blocked")
        beside = tasks.add("afine")
        tasks.wait_status(beside, "running")
        wait_until(lambda: value(tasks.connection, STUCK) == 2, hint=started.output)
        started.terminate()
        ended = Exit(started, time.monotonic())
    assert ended.code == 0, ended.printed
    assert ended.after_s < 1 + 4  # what a slow machine needs besides the grace
    assert "worker recycling" not in ended.printed
    # What did not end by its own fault before the stop is given back at once.
    assert rows(tasks.connection, "SELECT id, state, attempt FROM pgtasks.tasks ORDER BY id") == [
        (blocking, "queued", 0),
        (beside, "queued", 0),
    ]


def test_a_process_that_stands_still_loses_its_leases(tasks: Tasks, worker: StartWorker) -> None:
    """A call into C that keeps the interpreter's lock: another worker takes over, and its result is refused."""
    flags = ("--lease", "1", "--sweep-interval", "0.2")
    with worker(*flags) as one, worker(*flags) as two:
        wait_until(lambda: value(tasks.connection, "SELECT count(*) FROM pgtasks.workers") == 2)
        task_id = tasks.add("holds_the_lock", {"seconds": 5})
        tasks.wait_note(task_id, "begun")
        since = time.monotonic()
        tasks.wait_status(task_id, "completed")
        assert time.monotonic() - since < 4.5, "the one that stands still ended its task itself"
        # It goes on afterwards, and both stop in good order.
        wait_until(lambda: "lease lost" in one.output() + two.output(), 15)
        for worker_ in (one, two):
            worker_.terminate()
            assert worker_.wait() == 0, worker_.output()
    assert [outcome for _, outcome, *_ in tasks.attempts(task_id)] == ["worker_lost"]
    assert tasks.notes(task_id) == ["begun", "begun"]
    assert value(tasks.connection, HELD) == 0
