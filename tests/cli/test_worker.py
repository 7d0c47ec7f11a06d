"""`pgtasks worker`: flags become settings, the app is loaded, the exit code is the engine's."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pgtasks.app import App
from pgtasks.cli import working
from pgtasks.settings import QueueSlots, WorkerSettings
from tests.access import as_role
from tests.cli.conftest import Run
from tests.database import Connection, value
from tests.workers import WorkerProcess

pytestmark = pytest.mark.pg


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[WorkerSettings]]:
    """What the engine was started with; it returns 7 at once."""
    calls: list[WorkerSettings] = []

    def run(app: App, settings: WorkerSettings, *, label: str, child_command: list[str], **_: Any) -> int:
        assert "add" in app.handlers
        assert label == "tests.apps.basic:app"
        assert " ".join(child_command).startswith(sys.executable)
        assert " -m pgtasks.cli.child tests.apps.basic:app" in " ".join(child_command)
        calls.append(settings)
        return 7

    monkeypatch.setattr(working, "run", run)
    monkeypatch.setattr(working, "leave_within", lambda *_: None)
    monkeypatch.setattr("pgtasks.cli.logs.configure", lambda *_: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield calls
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_flags_win_over_the_environment(
    pgtasks: Run, started: list[WorkerSettings], monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    """And what neither names keeps its default."""
    monkeypatch.setenv("PGTASKS_CONCURRENCY", "3")
    monkeypatch.setenv("PGTASKS_LEASE", "9")
    ran = pgtasks("worker", "tests.apps.basic:app", "-q", "mail:4", "--queue", "default", "--lease", "12.5", "--drain",
                  "--no-scheduler", "--log-format", "json", "--pooler", "transaction", "--safety-poll",
                  "1")  # fmt: skip
    assert ran.code == 7
    (settings,) = started
    assert settings == WorkerSettings(
        dsn=as_role(dsn, "worker"),
        queues=(QueueSlots("mail", 4), QueueSlots("default")),
        concurrency=3,
        lease_s=12.5,
        drain=True,
        log_format="json",
        pooler="transaction",
        safety_poll_s=1.0,
        scheduler=False,
    )


def test_a_flag_names_the_database_for_the_handlers_too(offline: Run, started: list[WorkerSettings], dsn: str) -> None:
    """What a handler enqueues goes where its worker works."""
    assert offline("worker", "tests.apps.basic:app", "--dsn", dsn).code == 7
    assert started[0].dsn == os.environ["PGTASKS_DSN"] == as_role(dsn, "worker")


def test_a_misspelt_variable_is_2(pgtasks: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the one that was meant."""
    monkeypatch.setenv("PGTASKS_CONCURENCY", "3")
    ran = pgtasks("worker", "tests.apps.basic:app")
    assert ran.code == 2
    assert "did you mean PGTASKS_CONCURRENCY?" in ran.err


def test_a_real_worker_drains_and_exits(pgtasks: Run, dsn: str) -> None:
    """From enqueue to the result, all through the command line."""
    id = pgtasks("enqueue", "add", '{"a": 40, "b": 2}').out.strip()
    with WorkerProcess("tests.apps.basic:app", dsn, "--drain") as process:
        assert process.wait() == 0
    shown = pgtasks("tasks", "show", id, "--json").json
    assert (shown["status"], shown["result"]) == ("completed", 42)
    assert pgtasks("status", "--json").json["totals"]["completed_last_hour"] == 1


def test_json_log_lines_are_json(dsn: str, connection: Connection) -> None:
    """Every one of them, and SIGTERM ends with 0."""
    connection.execute("INSERT INTO pgtasks.tasks (name, payload) VALUES ('fail', '{\"message\": \"a\\u001b[2Jb\"}')")
    with WorkerProcess("tests.apps.basic:app", dsn, "--log-format", "json") as process:
        process.wait_ready()
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        lines: list[dict[str, Any]] = [json.loads(line) for line in process.output().splitlines()]
    assert {"worker started", "worker stopped"} <= {line["event"] for line in lines}
    assert all({"ts", "level", "logger", "event"} <= line.keys() for line in lines)
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0
