"""What a handler, its hooks and the log are told: the context's fields, each event once, never a payload."""

import json
import queue
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pgtasks import App, Context
from pgtasks.context import RUNNING
from pgtasks.engine.attempt import Attempt, Judge
from pgtasks.engine.runners import AsyncRunner
from pgtasks.model import Claimed
from pgtasks.outcome import Completed, Outcome
from tests.database import Connection, rows, value
from tests.handlers.conftest import Tasks
from tests.workers import WorkerProcess

APP = "tests.apps.observed:app"
SECRET = "hunter2-payload"  # noqa: S105 - what is looked for in the logs


class Observed(Tasks):
    """The same, for the app of tests/apps/observed.py."""

    def worker(self, *flags: str) -> WorkerProcess:
        """Start a worker."""
        return WorkerProcess(APP, self.dsn, *flags)


@pytest.fixture
def tasks(connection: Connection, dsn: str, tmp_path: Path) -> Observed:
    """The tasks of the test's database."""
    return Observed(connection, dsn, tmp_path)


def result(tasks: Tasks, task_id: int) -> object:
    """The stored result of a task."""
    return value(tasks.connection, "SELECT result FROM pgtasks.history WHERE id = %s", task_id)


def test_hooks_run_around_each_attempt_once(tasks: Observed) -> None:
    """Sync and async handlers; with what becomes of the task."""
    added = [tasks.add("unsteady"), tasks.add("aunsteady")]
    with tasks.worker():
        for task_id in added:
            tasks.wait_status(task_id, "completed")
        told = [tasks.add("tell", {"task_id": task_id}) for task_id in added]
        for task_id in told:
            tasks.wait_status(task_id, "completed")
    for task_id in told:
        assert result(tasks, task_id) == ["before 1", "RetryIn", "before 2", "Completed"]


def test_a_before_hook_that_raises_fails_the_task_and_an_after_hook_changes_nothing(tasks: Observed) -> None:
    """Whatever they raise, the next task runs."""
    refused = tasks.add("aunsteady", headers='{"refuse": true}', max_attempts=1)
    broken = [tasks.add(name, headers='{"break": true}', attempt=1) for name in ("unsteady", "aunsteady")]
    with tasks.worker() as worker:
        tasks.wait_status(refused, "dead")
        for task_id in broken:
            tasks.wait_status(task_id, "completed")
        worker.terminate()
        assert worker.wait() == 0
        assert worker.output().count("after-hook failed") == 2
    assert tasks.attempts(refused) == [(1, "failed", "SystemExit", "refused by a hook")]


def test_a_context_tells_about_its_task(tasks: Observed) -> None:
    """Every field; the headers are those of the row."""
    task_id = tasks.add(
        "show",
        {"secret": SECRET},
        queue="default",
        headers='{"trace": "1"}',
        attempt=2,
        max_attempts=7,
        timeout="1 min",
    )
    tasks.drain()
    found = result(tasks, task_id)
    assert isinstance(found, dict)
    left, lease_id = found.pop("left"), found.pop("lease_id")
    assert 50 < left <= 60
    assert lease_id == value(tasks.connection, "SELECT lease_id FROM pgtasks.history")
    assert found == {
        "task_id": task_id,
        "name": "show",
        "queue": "default",
        "attempt": 3,
        "max_attempts": 7,
        "headers": {"trace": "1"},
        "cancelled": False,
        "lease_lost": False,
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_has_one_line_per_event_and_no_payload(tasks: Observed, log_format: str) -> None:
    """At every level, also for errors, misfits, timeouts and stops; control characters are written out."""
    shown = tasks.add("show", {"secret": SECRET})
    failed = tasks.add("fails_with", {"secret": SECRET})
    tasks.add("fails_aside", {"secret": SECRET})
    tasks.add("show", {"secret": SECRET, "context": SECRET})
    unread = "INSERT INTO pgtasks.tasks (name, payload) VALUES ('show', %s)"
    tasks.connection.execute(unread, [json.dumps({"secret": SECRET, "n": 1})[:-1] + "9" * 5000 + "}"])
    printed = tasks.drain("--log-format", log_format, "--log-level", "debug")
    assert SECRET not in printed
    assert "\x1b" not in printed
    lines = [line for line in printed.splitlines() if not line.startswith(" ")]
    about_failed = [line for line in lines if f"{failed}" in line]
    assert [sign for line in about_failed for sign in ("task failed", "task dead") if sign in line] == [
        "task failed",
        "task dead",
    ]
    assert "ValueError: two" in about_failed[0]
    own = [line for line in lines if "showing" in line and str(shown) in line]
    assert len(own) == 1
    if log_format == "json":
        document = json.loads(own[0])
        assert (document["event"], document["task_id"], document["more"]) == ("showing\nthe context", shown, 1)
        assert all(json.loads(line) for line in lines)
    assert rows(tasks.connection, "SELECT count(*) FROM pgtasks.attempts WHERE error LIKE %s", f"%{SECRET}%") == [(0,)]


def test_a_worker_says_a_tracebacks_lines_below_the_event(tasks: Observed) -> None:
    """Once, although the task fails and then dies: three tasks of one kind make four tracebacks, not six."""
    for _ in range(3):
        tasks.add("fails_with", {"secret": "x"})
    printed = tasks.drain()
    assert [printed.count(event) for event in ("task failed", "task dead")] == [3, 3]
    assert printed.count('\n    File "') == 4
    assert "in fails_with\n" in printed


def test_what_a_handler_logs_carries_its_task(tasks: Observed) -> None:
    """Through any logger, also in what it starts; nothing of it is left for the next one, nor for the engine."""
    loud = [tasks.add("says", {"tenant": f"def {number}"}) for number in range(3)]
    aloud = [tasks.add("asays", {"tenant": f"async {number}"}) for number in range(3)]
    printed = tasks.drain("--log-format", "json", "--concurrency", "1")
    lines = [json.loads(line) for line in printed.splitlines()]
    said = {
        line["event"]: (line["task_id"], line["task"], line["attempt"]) for line in lines if line["logger"] == "shop"
    }
    assert said == {
        **{f"work for def {number}": (id, "says", 1) for number, id in enumerate(loud)},
        **{
            f"work for {where}async {number}": (id, "asays", 1)
            for number, id in enumerate(aloud)
            for where in ("", "thread of ", "task of ")
        },
    }
    assert [result(tasks, task_id) for task_id in loud + aloud] == ["nobody"] * 6
    assert not [line for line in lines if line["logger"] != "shop" and "task_id" in line]


def test_the_engine_takes_outcomes_in_no_tasks_context() -> None:
    """What it starts from there lives on, and would log as that task for ever."""
    app = App("postgresql://nowhere")
    delivered: queue.SimpleQueue[tuple[object, Outcome]] = queue.SimpleQueue()

    @app.task
    async def seen() -> bool:
        return RUNNING.get() is not None

    runner = AsyncRunner(Judge([], []), lambda finished: delivered.put((RUNNING.get(), finished[0][1])))
    task = Claimed(
        id=1, lease_id=1, name="seen", payload="{}", attempt=1, max_attempts=None, timeout_s=None, priority=0,
        run_at=datetime.now(UTC), headers=None,
    )  # fmt: skip
    runner.submit([Attempt(task, app.handlers[next(iter(app.handlers))], "default", 0.0)])
    assert delivered.get(timeout=10) == (None, Completed("true"))
    runner.close(1.0)


def test_a_context_is_made_only_when_somebody_asks_for_it() -> None:
    """It costs more than a small handler."""
    app = App("postgresql://nowhere")

    @app.task
    def plain() -> None:
        raise NotImplementedError

    @app.task
    def asks(context: Context) -> None:
        raise NotImplementedError

    judge = Judge([], [])
    for name, wanted in (("plain", False), ("asks", True)):
        row = Claimed(1, 2, name, "{}", 1, None, None, 0, None, None)  # type: ignore[arg-type]  # no date is looked at
        attempt = Attempt(row, app.handlers[name], "default", 0.0)
        arguments = judge.arguments(attempt)
        assert (attempt.context is not None, set(arguments) == {"context"}) == (wanted, wanted)
