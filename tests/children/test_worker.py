"""Isolated tasks in a real worker."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtasks import App, ConfigError
from pgtasks.engine.worker import Worker
from pgtasks.settings import WorkerSettings
from tests.children.conftest import APP, is_alive, written
from tests.database import ROOT, Connection, rows, value, wait_until
from tests.workers import WorkerProcess

CHILDREN = ("--children", "4")


class Queue:
    """Adds tasks and looks them up."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        self.connection, self.folder = connection, folder

    def add(self, name: str, payload: dict[str, Any] | None = None, **columns: Any) -> int:
        """Insert a task by SQL and return its id."""
        given = {"name": name, "payload": json.dumps(payload or {}), **columns}
        marks = ", ".join(["%s"] * len(given))
        statement = f"INSERT INTO pgtasks.tasks ({', '.join(given)}) VALUES ({marks}) RETURNING id"
        return int(value(self.connection, statement, *given.values()))

    def begin(self, name: str, **columns: Any) -> tuple[int, Path]:
        """Add a task whose handler writes to a file, and wait until it has begun."""
        path = self.folder / f"{name}-{len(list(self.folder.iterdir()))}"
        path.touch()
        task_id = self.add(name, {"path": str(path)}, **columns)
        wait_until(lambda: written(path))
        return task_id, path

    def status(self, task_id: int) -> str:
        """Where a task stands."""
        return str(value(self.connection, "SELECT status FROM pgtasks.all_tasks WHERE id = %s", task_id))

    def wait(self, task_id: int, status: str) -> None:
        """Wait until a task stands there."""
        wait_until(lambda: self.status(task_id) == status, 20, hint=lambda: f"it is {self.status(task_id)}")

    def result(self, task_id: int) -> Any:
        """Wait for a task's success and give its result."""
        self.wait(task_id, "completed")
        return value(self.connection, "SELECT result FROM pgtasks.history WHERE id = %s", task_id)

    def attempts(self, task_id: int) -> list[tuple[str, str]]:
        """Outcome and error of the attempts that failed."""
        return rows(
            self.connection,
            "SELECT outcome, error FROM pgtasks.attempts WHERE task_id = %s ORDER BY finished_at",
            task_id,
        )


@pytest.fixture
def tasks(connection: Connection, tmp_path: Path) -> Queue:
    """The tasks of the test's database."""
    return Queue(connection, tmp_path)


@pytest.fixture
def worker(tasks: Queue, dsn: str) -> Iterator[WorkerProcess]:
    """A worker that has started."""
    with WorkerProcess(APP, dsn, *CHILDREN, "--log-format", "json", "--shutdown-grace", "1") as started:
        yield started.wait_ready()


def children_of(pid: int) -> list[int]:
    """Give the processes that a process has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(number) for number in found.split()]


def sockets_of(pid: int) -> set[str]:
    """Give the sockets that a process has open."""
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return {link for link in links if link.startswith("socket:")}


def test_c_code_that_sleeps_for_ever_is_killed_at_its_time_limit(tasks: Queue, worker: WorkerProcess) -> None:
    """The task has timed out, its process is gone, and the worker goes on with everything else."""
    task_id, path = tasks.begin("sleeps_in_c", timeout="500 ms")
    child = int(written(path))
    others = [tasks.add("echo", {"value": number}) for number in range(5)]
    assert [tasks.result(other) for other in others] == [0, 1, 2, 3, 4]
    tasks.wait(task_id, "dead")
    assert tasks.attempts(task_id) == [("timed_out", "ran longer than its timeout of 0.5 s")]
    assert not is_alive(child)
    took_s = value(
        tasks.connection,
        "SELECT extract(epoch FROM finished_at - started_at)::float FROM pgtasks.attempts WHERE task_id = %s",
        task_id,
    )
    assert 2.5 <= took_s < 10
    assert "child process killed" in worker.output()
    assert tasks.result(tasks.add("pid_of_worker")) == worker.pid


def test_a_task_that_kills_its_process_ends_as_a_dead_letter_that_names_the_signal(
    tasks: Queue, worker: WorkerProcess
) -> None:
    """L-05: after its attempts, each of which is named, and no neighbour is touched."""
    neighbour, path = tasks.begin("sleeps")
    guilty = tasks.add("killed", {"number": 11})
    tasks.wait(guilty, "dead")
    message = "its process was killed by SIGSEGV (11)"
    assert tasks.attempts(guilty) == [("worker_lost", message)] * 2
    found = rows(tasks.connection, "SELECT reason, attempt, error FROM pgtasks.dead_letters WHERE id = %s", guilty)
    assert found == [("worker_lost", 2, message)]
    assert tasks.status(neighbour) == "running"
    assert is_alive(int(written(path)))
    value(tasks.connection, "SELECT pgtasks.cancel(%s)", neighbour)
    tasks.wait(neighbour, "cancelled")
    assert written(path) == "cleaned up"


def test_children_share_nothing_with_their_worker_and_die_with_it(tasks: Queue, worker: WorkerProcess) -> None:
    """D-06: no socket, no group of processes; a killed worker leaves no child, whatever it runs."""
    _, in_c = tasks.begin("sleeps_in_c")
    _, in_python = tasks.begin("defies")
    children = children_of(worker.pid)
    assert {int(written(in_c)), int(written(in_python))} <= set(children)
    for child in children:
        assert not sockets_of(child) & sockets_of(worker.pid)
        assert len(sockets_of(child)) <= 1
        assert os.getpgid(child) == os.getsid(child) == child
    worker.kill()
    wait_until(lambda: not [child for child in children if is_alive(child)])


def test_a_stopping_worker_lets_children_finish_then_gives_their_tasks_back(
    tasks: Queue, worker: WorkerProcess
) -> None:
    """Within the grace time they end as usual; after it they are stopped, at no charge."""
    gate = tasks.folder / "gate"
    finishing = tasks.add("waits_for", {"path": str(gate)})
    tasks.wait(finishing, "running")
    interrupted, path = tasks.begin("sleeps")
    defiant, _ = tasks.begin("defies")
    children = children_of(worker.pid)
    since = time.monotonic()
    worker.signal(signal.SIGINT)
    worker.wait_output("worker stopping")
    gate.touch()
    assert worker.wait() == 0
    assert time.monotonic() - since < 8
    assert not [child for child in children if is_alive(child)]
    assert tasks.status(finishing) == "completed"
    assert written(path) == "cleaned up"
    for task_id in (interrupted, defiant):
        assert tasks.status(task_id) == "queued"
        assert value(tasks.connection, "SELECT attempt FROM pgtasks.tasks WHERE id = %s", task_id) == 0
        assert tasks.attempts(task_id) == []


def test_what_a_child_logs_comes_out_as_the_worker_writes(tasks: Queue, worker: WorkerProcess) -> None:
    """Each line once, with the task's fields. The first child is there before the first task."""
    wait_until(lambda: len(children_of(worker.pid)) == 1)
    task_id = tasks.add("tells")
    tasks.result(task_id)
    lines = [json.loads(line) for line in worker.output().splitlines()]
    (told,) = [line for line in lines if line["event"] == "telling\nit"]
    assert (told["task_id"], told["task"], told["attempt"], told["more"]) == (task_id, "tells", 1, 1)
    assert (told["logger"], told["level"]) == ("pgtasks.task", "info")
    (line,) = [line for line in lines if line["event"] == "a line of the shop"]
    assert (line["logger"], line["level"]) == ("shop", "warning")
    # It is no line of context.logger, and says all the same whose it is.
    assert (line["task_id"], line["task"], line["attempt"]) == (task_id, "tells", 1)


def test_a_suspect_runs_in_a_child_whatever_its_handler_says(tasks: Queue, worker: WorkerProcess) -> None:
    """It may be what killed its process before."""
    assert tasks.result(tasks.add("pid_of_worker")) == worker.pid
    assert tasks.result(tasks.add("pid_of_worker", losses=1)) not in {worker.pid, None}


async def test_a_worker_without_a_command_for_children_refuses_such_an_app() -> None:
    """At its start, with the name of the task and a way out."""
    app = App()
    app.task(name="shrink", executor="process")(lambda: None)
    with pytest.raises(ConfigError, match=re.escape("task 'shrink' has executor=\"process\"")):
        Worker(app, WorkerSettings(dsn="dbname=nowhere"))


def test_an_unknown_executor_is_refused_with_the_one_that_was_meant() -> None:
    """When the module is imported."""
    with pytest.raises(ConfigError, match=re.escape("""got 'proces'; did you mean 'process'?""")):
        App().task(executor="proces")(lambda: None)  # type: ignore[call-overload]  # the mistake that is tested


class PlainPython(WorkerProcess):
    """A worker that an interpreter with options of its own runs."""

    @staticmethod
    def command(app: str, *flags: str) -> list[str]:
        """Give the command line."""
        return [sys.executable, "-OX", "told=so", "-Wdefault::BytesWarning", "-m", "pgtasks", "worker", app, *flags]


def test_a_child_starts_as_its_worker_started(tasks: Queue, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its folder and with its interpreter's options, wherever the app went since then."""
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    with PlainPython("tests.apps.moving:app", dsn):
        found = tasks.result(tasks.add("surroundings"))
    assert found == {
        "folder": str(ROOT),
        "optimize": 1,
        "options": {"told": "so"},
        "warnings": ["default::BytesWarning"],
    }
