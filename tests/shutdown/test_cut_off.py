"""S-01: what a claim took in the moment of the stop is given back, however short the time is."""

import asyncio
import math
import signal
import time
from typing import Any

import pytest

from pgtasks import App
from pgtasks.engine import outgoing
from pgtasks.engine.departure import EXIT_FAILURE, EXIT_OK, LATE_S
from pgtasks.engine.worker import Worker
from pgtasks.errors import PgtasksError
from pgtasks.settings import WorkerSettings
from pgtasks.store.session import Statement
from tests.database import Connection, rows, value, wait_until
from tests.handlers.conftest import Tasks
from tests.leases import steps
from tests.shutdown.conftest import Exit

LEFT = "SELECT count(*) FILTER (WHERE state = 'running'), coalesce(max(attempt), 0) FROM pgtasks.tasks"


@pytest.mark.timeout(60)  # eight workers, on a busy machine
def test_under_load_without_grace_nothing_stays_leased(tasks: Tasks) -> None:
    """Stops at many moments of large claims: no task is left running, no attempt charged."""
    for number in range(8):
        tasks.connection.execute("TRUNCATE pgtasks.history")
        # Enough for each worker, however late its stop comes on a busy machine.
        tasks.connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 'nothing' FROM generate_series(1, 30000)")
        with tasks.worker("--concurrency", "500", "--shutdown-grace", "0") as worker:
            wait_until(lambda: value(tasks.connection, "SELECT count(*) FROM pgtasks.history") > 600)
            time.sleep(number * 0.003)  # another moment each time
            worker.terminate()
            if number % 2:
                worker.terminate()
            ended = Exit(worker, time.monotonic())
        assert ended.code in {0, 130}, ended.printed
        assert rows(tasks.connection, LEFT) == [(0, 0)], ended.printed
    # The row of a lease that a heartbeat had locked as its last task ended is the sweep's.
    steps.expire(tasks.connection)
    with steps.connect(tasks.dsn) as connection:
        swept = steps.sweep(connection)
    assert (swept.closed, swept.requeued, swept.dead, swept.cancelled) == (swept.leases, 0, 0, 0)
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.leases") == 0


async def test_outcomes_that_go_on_being_written_get_the_time(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow database writes batch after batch: work that is done need not be done again."""
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, 40)")
    app = App()
    app.task(name="t")(lambda: None)
    worker = Worker(app, WorkerSettings(dsn=dsn, shutdown_grace_s=0, concurrency=40))
    real, batches = worker._links.finish.fetch_one, 0  # noqa: SLF001 - there is no other way to slow its writes down

    async def slow(statement: Statement[Any], *rest: Any) -> Any:
        nonlocal batches
        batches += 1
        await asyncio.sleep(0.45)
        return await real(statement, *rest)

    monkeypatch.setattr(outgoing, "ROWS_MAX", 10)
    monkeypatch.setattr(worker._links.finish, "fetch_one", slow)  # noqa: SLF001 - the same as above here
    assert await worker.introduce()
    working = asyncio.create_task(worker.work())
    deadline = time.monotonic() + 10
    while worker._completer.backlog < 30:  # noqa: SLF001 - the same as above here
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    batches = 0
    worker.on_signal(signal.SIGTERM)
    assert await working == EXIT_OK
    assert batches >= 3, "they would have been written in time anyway"
    assert value(connection, "SELECT count(*) FROM pgtasks.history") >= 30
    await worker.close()


class _Slow:
    """Holds the answers of a worker's claims back, for good, from a moment on."""

    def __init__(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        self._link = worker._links.claim  # noqa: SLF001 - there is no other way to hold its answers back
        self._real, self.held, self.look_fails = self._link.fetch_all, 0, False
        monkeypatch.setattr(self._link, "fetch_all", self._fetch_all)

    async def _fetch_all(self, statement: Statement[Any], *rest: Any) -> list[Any]:
        if "leases AS l" in statement.sql and self.look_fails:
            await asyncio.sleep(60)
        answer = await self._real(statement, *rest)
        if answer and "INSERT INTO pgtasks.leases" in statement.sql:
            self.held += len(answer)
            await asyncio.sleep(60)
        return answer


@pytest.mark.parametrize("look_fails", [False, True])
async def test_a_claim_that_does_not_return_is_cut_off_and_looked_up(
    dsn: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    look_fails: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Its tasks are released; when they cannot be looked up, the exit code says so."""
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, 5)")
    app = App()
    app.task(name="t")(lambda: None)
    worker = Worker(app, WorkerSettings(dsn=dsn, shutdown_grace_s=0))
    slow = _Slow(worker, monkeypatch)
    slow.look_fails = look_fails
    assert await worker.introduce()
    working = asyncio.create_task(worker.work())
    deadline = time.monotonic() + 10
    while not slow.held:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert rows(connection, LEFT) == [(5, 1)]
    began = time.monotonic()
    worker.on_signal(signal.SIGTERM)
    assert await working == (EXIT_FAILURE if look_fails else EXIT_OK)
    assert time.monotonic() - began < 1.5
    assert rows(connection, LEFT) == ([(5, 1)] if look_fails else [(0, 0)])
    await worker.close()


async def test_a_part_that_ends_by_itself_ends_the_worker(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would renew its leases for ever and do nothing; exit 1, said in the log, off the list."""

    class OddError(BaseException):
        """What no part expects."""

    async def odd() -> float:
        raise OddError

    app = App()
    app.task(name="t")(lambda: None)
    worker = Worker(app, WorkerSettings(dsn=dsn, shutdown_grace_s=0))
    monkeypatch.setattr(worker._sweeper, "sweep", odd)  # noqa: SLF001 - a part that breaks
    assert await worker.introduce()
    assert await asyncio.wait_for(worker.work(), 5) == EXIT_FAILURE
    await worker.close()
    (record,) = [record for record in caplog.records if record.getMessage() == "part ended"]
    assert vars(record)["pgtasks"] == {"part": "sweep", "error": "OddError"}
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0


async def test_a_part_that_was_cancelled_ends_the_worker(dsn: str, connection: Connection) -> None:
    """Whoever did that."""
    app = App()
    app.task(name="t")(lambda: None)
    worker = Worker(app, WorkerSettings(dsn=dsn, shutdown_grace_s=0))
    assert await worker.introduce()
    working = asyncio.create_task(worker.work())
    await asyncio.sleep(0.1)
    (listening,) = [task for task in asyncio.all_tasks() if task.get_name() == "listen"]
    listening.cancel()
    assert await asyncio.wait_for(working, 5) == EXIT_FAILURE
    await worker.close()
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0


async def test_a_worker_says_by_when_it_has_ended(dsn: str, connection: Connection) -> None:
    """Whoever watches it takes a stop that takes longer for a fault."""
    worker = Worker(App(), WorkerSettings(dsn=dsn, shutdown_grace_s=7))
    assert await worker.introduce()
    assert worker.vitals().signs().late_s == -math.inf
    worker.on_signal(signal.SIGTERM)
    assert await asyncio.wait_for(worker.work(), 20) == EXIT_OK
    assert -7 - LATE_S < worker.vitals().signs().late_s < -7
    await worker.close()
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0


async def test_a_worker_that_fails_to_start_is_not_on_the_list(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was put there before the start failed."""

    async def refused() -> None:
        assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 1
        raise PgtasksError("refused")

    worker = Worker(App(), WorkerSettings(dsn=dsn))
    monkeypatch.setattr(worker._tidier, "tidy", refused)  # noqa: SLF001 - a start that fails
    with pytest.raises(PgtasksError, match="refused"):
        await worker.introduce()
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0
    await worker.close()


def test_a_second_signal_does_not_wait_for_a_database_that_hangs_at_the_last_statement(tasks: Tasks) -> None:
    """S-02: also when it comes while that statement waits for a lock."""
    with tasks.worker("--shutdown-grace", "30") as worker:
        worker.wait_ready()
        with tasks.connection.transaction():
            tasks.connection.execute("LOCK TABLE pgtasks.workers IN ACCESS EXCLUSIVE MODE")
            worker.terminate()
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pgtasks.workers'::regclass"
            wait_until(lambda: value(tasks.connection, waiting))
            since = time.monotonic()
            worker.terminate()
            ended = Exit(worker, since)
    assert ended.code == 130
    assert ended.after_s < 1.5


def test_the_start_names_the_tasks(tasks: Tasks) -> None:
    """Up to twenty of them."""
    with tasks.worker() as worker:
        worker.wait_ready()
        line = next(line for line in worker.output().splitlines() if "worker started" in line)
    names = line.split("names=")[1].split()[0].split(",")
    assert len(names) == 21
    assert names[0] == "adds_more"
    assert names[-1] == "…"


async def test_an_app_without_tasks_is_warned_about(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """The modules that define them were perhaps not imported; the worker works nevertheless."""
    worker = Worker(App(), WorkerSettings(dsn=dsn, drain=True))
    assert await worker.introduce()
    assert await asyncio.wait_for(worker.work(), 5) == EXIT_OK
    await worker.close()
    assert "the app has no tasks" in [record.getMessage() for record in caplog.records]
