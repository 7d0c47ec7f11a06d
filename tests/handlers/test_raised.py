"""R-03, R-04: whatever a handler raises is a failure of its task and of nothing else."""

import pytest

from tests.apps.tasks import ERRORS
from tests.database import rows, value
from tests.handlers.conftest import Tasks

# What is looked for in the stored text, where that is not obvious.
TEXTS = {
    "SystemExit": "3",
    "StopIteration": "stopped",
    "LeaseLost": "not really",
    "nul": "a\\u0000b",
    "surrogate": "caf\\udce9",
    "backslash": "a\\u0000b",
    "bytes": r"b'\x00\xff'",
    "right to left": "\u202egnihtemos 😀 \x1b[2J\nsecond line",
    "Unprintable": "<Unprintable whose message cannot be shown: SystemExit>",
    "chain": "number 999",
    "empty": "",
}


@pytest.mark.parametrize("name", ["raises", "araises"])
def test_every_error_is_recorded_and_retried_beside_living_neighbours(tasks: Tasks, name: str) -> None:
    """R-03, R-04: sync and async; with its class and text, twice, then dead; four neighbours run on."""
    neighbours = [tasks.add(kind, {"seconds": 3}) for kind in ("holds", "holds", "holds_sync", "holds_sync")]
    with tasks.worker() as worker:
        for neighbour in neighbours:
            tasks.wait_note(neighbour, "begun")
        added = {error: tasks.add(name, {"error": error}) for error in [*ERRORS, "RecursionError"]}
        for task_id in added.values():
            tasks.wait_status(task_id, "dead")
        for neighbour in neighbours:
            tasks.wait_status(neighbour, "completed")
            assert tasks.notes(neighbour) == ["begun", "ended"]
        worker.terminate()
        assert worker.wait() == 0
        # Those of tasks are indented; this would be one that nobody caught.
        assert "\nTraceback" not in worker.output()
    for error, task_id in added.items():
        assert tasks.notes(task_id) == [error, error, "dead: exhausted"]
        recorded = tasks.attempts(task_id)
        assert [(number, outcome) for number, outcome, *_ in recorded] == [(1, "failed"), (2, "failed")]
        for _, _, error_class, text in recorded:
            if error in {"SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "RecursionError"}:
                assert error_class.endswith(error)
            if error in TEXTS and not (name == "araises" and error.startswith("Stop")):
                assert text == TEXTS[error]
            assert len(text) < 4100


def test_a_traceback_starts_in_the_handler_and_is_capped(tasks: Tasks) -> None:
    """R-04: no line of ours comes first; ten megabytes and a thousand causes leave the ends."""
    added = [tasks.add("raises", {"error": error}, max_attempts=1) for error in ("SystemExit", "large", "chain")]
    tasks.drain()
    short, large, chain = (
        value(tasks.connection, "SELECT traceback FROM pgtasks.dead_letters WHERE id = %s", task_id)
        for task_id in added
    )
    assert short.splitlines()[1].strip().startswith('File "')
    assert "tests/apps/tasks.py" in short.splitlines()[1]
    for text in (large, chain):
        assert "characters left out" in text
        assert len(text) < 16_100


def test_a_handlers_own_cancellation_keeps_any_reason(tasks: Tasks) -> None:
    """R-04: what no column takes is written out; nothing is left running, the worker's log is intact."""
    added = {
        reason: tasks.add("cancels", {"reason": reason}) for reason in ("not needed", "", "two\nlines", "x" * 100_000)
    }
    odd = tasks.add("odd_cancel")
    tasks.drain()
    for reason, task_id in added.items():
        found = rows(tasks.connection, "SELECT status, error, attempt FROM pgtasks.history WHERE id = %s", task_id)
        assert found[0][0::2] == ("cancelled", 1)
        assert found[0][1][:1000] == reason[:1000]
    assert rows(tasks.connection, "SELECT status, error FROM pgtasks.history WHERE id = %s", odd) == [
        ("cancelled", r"{'\x00': '\udce9'}")
    ]


def test_what_a_handler_leaves_on_the_loop_ends_no_neighbour(tasks: Tasks) -> None:
    """R-03: a background task that raises SystemExit, and a stopped loop, cost nothing."""
    neighbour = tasks.add("holds", {"seconds": 1})
    with tasks.worker() as worker:
        tasks.wait_note(neighbour, "begun")
        for _ in range(3):
            tasks.wait_status(tasks.add("leaves_things_behind"), "completed")
        tasks.wait_status(neighbour, "completed")
        worker.terminate()
        assert worker.wait() == 0
        assert "tried to end the process" in worker.output()
