"""A handler that is told to stop and returns has stopped: its task ends as the reason for that says.

Counting it as completed would lose the work that a loop over `context.cancelled` left undone.
"""

from datetime import UTC, datetime

from pgtasks import App, Context
from pgtasks.engine.attempt import Attempt, Judge
from pgtasks.model import Claimed
from pgtasks.outcome import Cancelled, CancelRequested, Completed, Released, StopRequested
from tests.database import rows, value, wait_until
from tests.handlers.conftest import Tasks


def test_at_its_timeout_it_is_retried(tasks: Tasks) -> None:
    """The attempt is recorded as timed out."""
    task_id = tasks.add("obeys", timeout="0.3 s", max_attempts=1)
    tasks.drain()
    assert tasks.status(task_id) == "dead"
    assert rows(tasks.connection, "SELECT outcome FROM pgtasks.attempts WHERE task_id = %s", task_id) == [
        ("timed_out",)
    ]


def test_when_it_is_cancelled_it_ends_as_cancelled(tasks: Tasks) -> None:
    """And not as the completion it looks like."""
    task_id = tasks.add("obeys")
    with tasks.worker():
        tasks.wait_status(task_id, "running")
        assert value(tasks.connection, "SELECT pgtasks.cancel(%s)", task_id) == "requested"
        tasks.wait_status(task_id, "cancelled")


def test_when_its_worker_stops_it_is_given_back_uncharged(tasks: Tasks) -> None:
    """Another worker begins it again."""
    task_id = tasks.add("obeys")
    with tasks.worker("--shutdown-grace", "0.2") as worker:
        tasks.wait_status(task_id, "running")
        wait_until(lambda: value(tasks.connection, "SELECT count(*) FROM pgtasks.leases") == 1)
        worker.terminate()
        assert worker.wait() == 0, worker.output()
    assert rows(tasks.connection, "SELECT state, attempt FROM pgtasks.tasks WHERE id = %s", task_id) == [("queued", 0)]


def _attempt(*, asks: bool) -> tuple[Judge, Attempt]:
    app = App()

    def work(context: Context) -> bool:
        return asks and context.cancelled

    task = app.task(work)
    claimed = Claimed(1, 1, task.name, "{}", 1, None, None, 0, datetime.now(UTC), None)
    return Judge([], []), Attempt(claimed, app.handlers[task.name], "default", 0.0)


def test_only_one_that_asked_is_taken_to_have_stopped() -> None:
    """A handler that never looked has done its work, whatever was wanted of it meanwhile."""
    for asks, reason, expected in (
        (True, CancelRequested(), Cancelled),
        (True, StopRequested(), Released),
        (False, CancelRequested(), Completed),
        (False, StopRequested(), Completed),
    ):
        judge, attempt = _attempt(asks=asks)
        arguments = judge.arguments(attempt)
        attempt.stop(reason)
        assert isinstance(judge.returned(attempt, attempt.handler.function(**arguments)), expected)
