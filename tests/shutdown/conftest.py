"""Workers on the app of tests/apps/tasks.py that are told to stop."""

import time
from pathlib import Path

import pytest

from tests.database import Connection
from tests.handlers.conftest import Tasks
from tests.workers import WorkerProcess


@pytest.fixture
def tasks(connection: Connection, dsn: str, tmp_path: Path) -> Tasks:
    """The tasks of the test's database."""
    return Tasks(connection, dsn, tmp_path / "release")


class Exit:
    """How a worker ended after something was done to it: its code, and after how long."""

    def __init__(self, worker: WorkerProcess, since: float) -> None:
        self.code = worker.wait()
        self.after_s = time.monotonic() - since
        self.printed = worker.output()

    def quiet(self) -> bool:
        """Whether neither Python nor asyncio complained."""
        signs = ("Traceback", "Exception ignored", "never awaited", "was destroyed", "ResourceWarning")
        return not any(sign in self.printed for sign in signs)
