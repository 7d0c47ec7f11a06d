"""Workers on the app of tests/apps/tasks.py, and what became of their tasks."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.apps.tasks import NOTES
from tests.database import Connection, rows, value, wait_until
from tests.workers import WorkerProcess

APP = "tests.apps.tasks:app"


class Tasks:
    """Enqueues, runs and looks up tasks."""

    def __init__(self, connection: Connection, dsn: str, release: Path) -> None:
        connection.execute(NOTES.encode())
        self.connection, self.dsn, self.release = connection, dsn, release

    def add(self, name: str, payload: dict[str, Any] | None = None, **columns: Any) -> int:
        """Insert a task by SQL and return its id."""
        given = {"name": name, "payload": json.dumps(payload or {}), **columns}
        marks = ", ".join(["%s"] * len(given))
        statement = f"INSERT INTO pgtasks.tasks ({', '.join(given)}) VALUES ({marks}) RETURNING id"
        return int(value(self.connection, statement, *given.values()))

    def worker(self, *flags: str) -> WorkerProcess:
        """Start a worker."""
        return WorkerProcess(APP, self.dsn, *flags, env={"PGTASKS_TEST_RELEASE": str(self.release)})

    def drain(self, *flags: str, until_empty: bool = True) -> str:
        """Work until nothing is due and, unless told otherwise, no task is left; return what was printed."""
        if not until_empty:
            with self.worker("--drain", *flags) as worker:
                assert worker.wait() == 0
                return worker.output()
        with self.worker(*flags) as worker:
            wait_until(lambda: not self.left(), 15, hint=lambda: f"{self.left()}\n{worker.output()}")
            worker.terminate()
            assert worker.wait() == 0, worker.output()
            return worker.output()

    def left(self) -> list[tuple[Any, ...]]:
        """The live tasks."""
        return rows(
            self.connection, "SELECT id, name, left(payload::text, 100), state, attempt, run_at FROM pgtasks.tasks"
        )

    def left_count(self) -> int:
        """How many live tasks there are."""
        return int(value(self.connection, "SELECT count(*) FROM pgtasks.tasks"))

    def status(self, task_id: int) -> str:
        """Where a task stands."""
        return str(value(self.connection, "SELECT status FROM pgtasks.all_tasks WHERE id = %s", task_id))

    def wait_status(self, task_id: int, status: str, timeout_s: float = 10.0) -> None:
        """Wait until a task stands there."""
        wait_until(lambda: self.status(task_id) == status, timeout_s, hint=lambda: f"it is {self.status(task_id)}")

    def notes(self, task_id: int) -> list[str]:
        """What the runs of a task noted, in order."""
        found = rows(self.connection, "SELECT word FROM public.notes WHERE task_id = %s ORDER BY at", task_id)
        return [word for (word,) in found]

    def wait_note(self, task_id: int, word: str) -> None:
        """Wait until a run noted a word."""
        wait_until(lambda: word in self.notes(task_id), hint=lambda: f"noted: {self.notes(task_id)}")

    def attempts(self, task_id: int) -> list[tuple[int, str, str, str]]:
        """The recorded attempts: number, outcome, error class, error."""
        columns = "attempt, outcome, error_class, error"
        return rows(
            self.connection, f"SELECT {columns} FROM pgtasks.attempts WHERE task_id = %s ORDER BY finished_at", task_id
        )

    def dead(self, task_id: int) -> tuple[str, int, str]:
        """Reason, attempts and error of a dead letter."""
        (found,) = rows(
            self.connection, "SELECT reason, attempt, error FROM pgtasks.dead_letters WHERE id = %s", task_id
        )
        return found


@pytest.fixture
def tasks(connection: Connection, dsn: str, tmp_path: Path) -> Tasks:
    """The tasks of the test's database."""
    os.environ.pop("PGTASKS_DSN", None)
    return Tasks(connection, dsn, tmp_path / "release")
