"""Workers on the app of tests/apps/stuck.py."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.database import Connection
from tests.handlers.conftest import Tasks
from tests.workers import WorkerProcess

APP = "tests.apps.stuck:app"
StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def tasks(connection: Connection, dsn: str, tmp_path: Path) -> Tasks:
    """The tasks of the test's database."""
    return Tasks(connection, dsn, tmp_path / "release")


@pytest.fixture
def worker(dsn: str) -> StartWorker:
    """Start a worker that does not wait as long for handlers that ignore their stop, nor to recycle."""

    def start(*flags: str) -> WorkerProcess:
        return WorkerProcess(APP, dsn, *flags, env={"PGTASKS_TEST_IMPATIENT": "1"})

    return start
