"""R-06: timeouts, cancellations, and handlers that take no notice of them."""

from datetime import timedelta
from pathlib import Path

import pytest

from pgtasks import App
from tests.database import Connection, rows, value, wait_until
from tests.handlers.conftest import Tasks


def test_a_timeout_of_app_task_or_row_counts_in_this_order(dsn: str) -> None:
    """The row's, else the task's, else the app's; None is none."""
    app = App(dsn, timeout=timedelta(minutes=5))
    app.task(name="app's")(print_nothing)
    app.task(name="own", timeout=7)(print_nothing)
    app.task(name="none", timeout=None)(print_nothing)
    assert [handler.timeout_s for handler in app.handlers.values()] == [300, 7, None]
    App(dsn).task(name="default")(print_nothing)
    other = App(dsn)
    other.task(name="default")(print_nothing)
    assert other.handlers["default"].timeout_s == 1800


def print_nothing() -> None:
    """Do nothing."""


def test_a_row_s_timeout_stops_its_task_and_it_is_retried(tasks: Tasks) -> None:
    """Async and sync: recorded as timed out, with the place where it hung."""
    added = [tasks.add(name, {"seconds": 30}, timeout="0.3 s", max_attempts=2) for name in ("holds", "holds_sync")]
    with tasks.worker():
        for task_id in added:
            tasks.wait_status(task_id, "dead")
    for task_id in added:
        found = tasks.attempts(task_id)
        assert [(number, outcome) for number, outcome, *_ in found] == [(1, "timed_out"), (2, "timed_out")]
        assert found[0][3] == "ran longer than its timeout of 0.3 s"
        assert "ended" not in tasks.notes(task_id)
        trace = value(tasks.connection, "SELECT traceback FROM pgtasks.dead_letters WHERE id = %s", task_id)
        assert "tests/apps/tasks.py" in trace


@pytest.mark.slow
def test_a_deaf_handler_times_out_and_keeps_only_its_own_slot(tasks: Tasks) -> None:
    """R-06: marked after the grace, a hundred others finish meanwhile, its end changes nothing."""
    deaf = [tasks.add("deaf"), tasks.add("deaf_sync")]
    with tasks.worker("--concurrency", "3") as worker:
        for task_id in deaf:
            tasks.wait_note(task_id, "begun")
        others = [tasks.add("fine") for _ in range(100)]
        wait_until(lambda: all(tasks.status(task_id) == "completed" for task_id in others[-3:]))
        for task_id in deaf:
            tasks.wait_status(task_id, "dead")
            assert tasks.dead(task_id)[::2] == ("exhausted", "ran longer than its timeout of 0.3 s")
        busy = "SELECT max(busy) FROM pgtasks.workers"
        assert worker.output().count("handler ignored its stop") == 2
        Path(tasks.release).touch()
        wait_until(lambda: worker.output().count("stuck handler ended") == 2, hint=worker.output)
        # All three slots work again, and the hook for the dead ran once for each.
        holding = [tasks.add("holds", {"seconds": 1}) for _ in range(3)]
        for task_id in holding:
            tasks.wait_note(task_id, "begun")
        assert [tasks.notes(task_id) for task_id in deaf] == [["begun", "dead: exhausted"]] * 2
        assert value(tasks.connection, busy) <= 3
        worker.terminate()
        assert worker.wait() == 0


def test_a_queued_task_is_cancelled_at_once(tasks: Tasks) -> None:
    """It never runs."""
    task_id = tasks.add("fine")
    assert value(tasks.connection, "SELECT pgtasks.cancel(%s)", task_id) == "cancelled"
    tasks.drain(until_empty=False)
    assert (tasks.status(task_id), tasks.notes(task_id)) == ("cancelled", [])


def test_running_tasks_are_cancelled(tasks: Tasks) -> None:
    """Async by an exception, sync through the context, and one that turns it into another error."""
    kinds = {"holds": {"seconds": 60}, "holds_sync": {"seconds": 60}, "fails_when_stopped": {}}
    added = {name: tasks.add(name, payload) for name, payload in kinds.items()}
    with tasks.worker() as worker:
        for task_id in added.values():
            tasks.wait_note(task_id, "begun")
        for task_id in added.values():
            assert value(tasks.connection, "SELECT pgtasks.cancel(%s)", task_id) == "requested"
        for task_id in added.values():
            tasks.wait_status(task_id, "cancelled", timeout_s=5)
            assert "ended" not in tasks.notes(task_id)
        worker.terminate()
        assert worker.wait() == 0
        assert worker.output().count("task cancelled") == 3
    assert rows(tasks.connection, "SELECT DISTINCT error FROM pgtasks.history") == [("cancelled while it ran",)]


def test_a_task_on_a_blocked_loop_is_cancelled_when_it_yields(tasks: Tasks) -> None:
    """Nobody can interrupt blocking code; the stop waits for it, and is not lost."""
    with tasks.worker() as worker:
        blocking = tasks.add("blocks", {"seconds": 1.5})
        tasks.wait_status(blocking, "running")
        behind = tasks.add("holds", {"seconds": 60})
        tasks.wait_status(behind, "running")
        assert value(tasks.connection, "SELECT pgtasks.cancel(%s)", behind) == "requested"
        tasks.wait_status(behind, "cancelled", timeout_s=5)
        assert tasks.notes(behind) == []
        assert worker.running


def test_a_task_that_fails_while_its_cancellation_is_requested_is_not_retried(
    tasks: Tasks, connection: Connection
) -> None:
    """Also on its last attempt: cancelled, not dead."""
    for limit in (1, 5):
        task_id = tasks.add("fails_when_stopped", max_attempts=limit)
        with tasks.worker():
            tasks.wait_note(task_id, "begun")
            assert value(connection, "SELECT pgtasks.cancel(%s)", task_id) == "requested"
            tasks.wait_status(task_id, "cancelled")
        assert tasks.notes(task_id) == ["begun"]
