"""What cannot be written keeps no worker from leaving: neither one that recycles nor one that is told to stop."""

import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.database import Connection, rows, wait_until
from tests.handlers.conftest import Tasks
from tests.proxy import Proxy
from tests.shutdown.conftest import Exit
from tests.stuck.conftest import APP, StartWorker
from tests.workers import WorkerProcess

FLAGS = ("--stuck-max", "1")


@pytest.fixture(autouse=True)
def obstacle(connection: Connection) -> Iterator[None]:
    """A user's table that refers to tasks, for the test's time."""
    connection.execute(b"CREATE TABLE public.orders (task_id bigint REFERENCES pgtasks.tasks (id))")
    yield
    connection.execute(b"DROP TABLE public.orders")


def held_fast(tasks: Tasks, worker: WorkerProcess, **columns: object) -> int:
    """Run a task whose outcome is refused, until that is known."""
    task_id = tasks.add("afine", {"seconds": 0.5}, **columns)
    rows(tasks.connection, "INSERT INTO public.orders VALUES (%s)", task_id)
    worker.wait_output("outcome refused by the database")
    return task_id


def impatient(dsn: str, *flags: str) -> WorkerProcess:
    """Start a worker that finds a lock sooner than others."""
    soon = f"{dsn}&options=-c%20lock_timeout%3D500ms"
    return WorkerProcess(APP, soon, *flags, env={"PGTASKS_TEST_IMPATIENT": "1"})


def wait_recycled(tasks: Tasks, worker: WorkerProcess, pid: int) -> None:
    """Wait until the same process works again, as a new worker."""
    later = tasks.add("fine")
    tasks.wait_status(later, "completed", 40)
    assert worker.pid == pid
    assert worker.output().count("worker started") >= 2


def test_a_refused_outcome_keeps_no_worker_from_recycling(tasks: Tasks, worker: StartWorker) -> None:
    """A handler blocks its loop for ever beside it: the new worker runs what waits; the lease of what is left ends."""
    with worker(*FLAGS, "--lease", "2", "--sweep-interval", "0.2", "--shutdown-grace", "60") as started:
        pid = started.wait_ready().pid
        bad = held_fast(tasks, started, max_attempts=1)
        since = time.monotonic()
        tasks.add("never_yields", max_attempts=1)
        started.wait_output("worker recycling")
        wait_recycled(tasks, started, pid)
        assert time.monotonic() - since < 30, "it waited for the grace time although nothing could be gained"
        assert "unwritten=1" in started.output()
        rows(tasks.connection, "TRUNCATE public.orders")
        # It ran for the last time, and counts as a task of a lost worker.
        tasks.wait_status(bad, "dead", 20)


def test_an_outcome_behind_a_lock_delays_recycling_by_the_grace_time(tasks: Tasks, dsn: str) -> None:
    """Somebody's transaction that stays open is no reason to stand still for ever, nor for a lease."""
    with impatient(dsn, *FLAGS, "--shutdown-grace", "1") as started, psycopg.connect(dsn) as other:
        pid = started.wait_ready().pid
        _lock(tasks, other, started)
        tasks.add("never_yields", max_attempts=1)
        started.wait_output("worker recycling")
        wait_recycled(tasks, started, pid)
        other.rollback()


def test_a_database_that_is_away_is_waited_for(tasks: Tasks) -> None:
    """For longer than the grace time; what was left is written when it is back."""
    with Proxy(tasks.dsn) as proxy:
        env = {"PGTASKS_TEST_IMPATIENT": "1"}
        flags = ("--stuck-max", "1", "--lease", "30", "--shutdown-grace", "0.5")
        with WorkerProcess(APP, proxy.dsn, *flags, env=env) as started:
            started.wait_ready()
            stuck = tasks.add("never_ends", max_attempts=1)
            tasks.wait_note(stuck, "begun")
            proxy.refuse = True
            proxy.cut()
            started.wait_output("worker stopping", 20)
            stopping = time.monotonic()
            # The grace time, and all that a worker whose database is there would wait.
            wait_until(lambda: time.monotonic() - stopping > 3, 10)
            assert "worker stopped" not in started.output()
            proxy.refuse = False
            tasks.wait_status(stuck, "dead", 20)
            wait_until(lambda: started.output().count("worker started") == 2, 30, hint=started.output)
            assert "unwritten=0" in started.output()


def _lock(tasks: Tasks, other: psycopg.Connection, started: WorkerProcess) -> None:
    locked = tasks.add("afine", {"seconds": 1})
    tasks.wait_status(locked, "running")
    other.execute("SELECT FROM pgtasks.tasks WHERE id = %s FOR UPDATE", [locked])
    started.wait_output("outcomes wait for a lock", 20)


def _refuse(tasks: Tasks, _other: psycopg.Connection, started: WorkerProcess) -> None:
    held_fast(tasks, started)


@pytest.mark.parametrize(("hold", "grace_s", "limit_s"), [(_refuse, 60, 12), (_lock, 2, 12)])
def test_a_stop_does_not_wait_for_what_cannot_be_written(
    tasks: Tasks,
    dsn: str,
    hold: Callable[[Tasks, psycopg.Connection, WorkerProcess], None],
    grace_s: float,
    limit_s: float,
) -> None:
    """What is refused costs no grace time, a lock no more than that; the exit code says that something is left."""
    with impatient(dsn, "--shutdown-grace", str(grace_s)) as started, psycopg.connect(dsn) as other:
        started.wait_ready()
        hold(tasks, other, started)
        started.terminate()
        ended = Exit(started, time.monotonic())
        other.rollback()
    assert ended.code == 1, ended.printed
    assert ended.after_s < limit_s
    assert "unwritten=1" in ended.printed


def test_a_stop_offers_what_was_refused_once_more(tasks: Tasks, worker: StartWorker) -> None:
    """Its obstacle was taken away before: the outcome goes in at the end, and the exit code is 0."""
    with worker("--shutdown-grace", "60") as started:
        started.wait_ready()
        task_id = held_fast(tasks, started)
        with tasks.connection.transaction():
            rows(tasks.connection, "TRUNCATE public.orders")
            started.terminate()
        assert started.wait() == 0, started.output()
    assert tasks.status(task_id) == "completed"
