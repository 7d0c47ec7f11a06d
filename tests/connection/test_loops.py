"""L-07: every loop of a worker outlives every error that passes, says so, and is back within seconds."""

import sys
import time
from collections.abc import Iterator
from operator import gt
from pathlib import Path

import pytest

from tests.connection import faulty_worker
from tests.connection.faulty_worker import STATEMENTS
from tests.database import Connection, rows, value, wait_until
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
STATES = ("57014", "40001", "40P01", "53300", "57P01", "25P03")
# These meet the other states in tests/leases/test_recovery.py, by a trigger in the database.
THERE = ("claim", "finish", "heartbeat")
ORDERS = [(loop, state) for loop in STATEMENTS for state in STATES if loop not in THERE or state in {"53300", "57P01"}]
FAULTS = 2
BACK_S = 5.0


class _Faulty(WorkerProcess):
    """A worker whose statements fail on order."""

    order: Path

    @classmethod
    def command(cls, app: str, *flags: str) -> list[str]:
        return [sys.executable, "-m", "tests.connection.faulty_worker", str(cls.order), "worker", app, *flags]


@pytest.fixture
def faulty(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Faulty]:
    """One worker for all loops and states."""
    monkeypatch.setattr(_Faulty, "order", tmp_path / "order", raising=False)
    faulty_worker.order(_Faulty.order, "none", "57014", 0)
    flags = ("--lease=2", "--sweep-interval=0.2", "--safety-poll=1")
    with _Faulty("tests.apps.pooled:app", dsn, *flags) as worker:
        yield worker.wait_ready()


def meet(worker: _Faulty, connection: Connection, loop: str, state: str) -> None:
    """Let a loop meet an error, wait until it says so and that it is back, and that a task runs."""
    signs = [f"a fault as ordered for {loop}", f"part recovered part={loop}"]
    if loop == "listen":
        signs = ["listening session lost", "listening again"]

    def counts() -> list[int]:
        return [worker.output().count(sign) for sign in signs]

    before = counts()
    faulty_worker.order(worker.order, loop, state, FAULTS)
    since = time.monotonic()
    task_id = value(connection, "SELECT pgtasks.enqueue('echo', '{\"number\": 1}')")
    wait_until(
        lambda: faulty_worker.left(worker.order) == 0 and all(map(gt, counts(), before)),
        hint=lambda: f"{loop} {state}:\n{worker.output()}",
    )
    done = "SELECT count(*) FROM pgtasks.history WHERE id = %s AND status = 'completed'"
    wait_until(lambda: value(connection, done, task_id))
    assert time.monotonic() - since < 2 * BACK_S, (loop, state)


def test_every_loop_outlives_every_error(faulty: _Faulty, connection: Connection) -> None:
    """Each comes twice in a row, to one worker; no task is charged an attempt for it."""
    for loop, state in ORDERS:
        meet(faulty, connection, loop, state)
    assert faulty.running
    assert rows(connection, "SELECT * FROM pgtasks.attempts") == []
    assert "part ended" not in faulty.output()


def test_the_scheduler_comes_back_after_its_backend_was_terminated(faulty: _Faulty, connection: Connection) -> None:
    """57P01 on the connection of the schedules, with a fire due each second."""
    schedule = "FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/schedule/%%'"
    wait_until(lambda: rows(connection, f"SELECT 1 {schedule}"))
    fires = "SELECT count(*) FROM pgtasks.schedule_fires WHERE outcome = 'fired'"
    rows(connection, f"SELECT pg_terminate_backend(pid, 5000) {schedule}")
    before = value(connection, fires)
    wait_until(lambda: value(connection, fires) >= before + 2, BACK_S, hint=faulty.output)
    assert value(connection, "SELECT count(*) = count(DISTINCT task_id) FROM pgtasks.schedule_fires")
