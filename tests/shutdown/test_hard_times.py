"""S-02: repeated signals, signals at bad moments, and a database that is away."""

import signal
import socket
import time

import pytest

from tests.database import rows, value, wait_until
from tests.handlers.conftest import Tasks
from tests.proxy import Proxy
from tests.shutdown.conftest import Exit
from tests.workers import WorkerProcess


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_exits_at_once_with_130(tasks: Tasks, number: signal.Signals) -> None:
    """S-02: within two seconds, and the leases are given back."""
    with tasks.worker("--shutdown-grace", "30") as worker:
        added = [tasks.add("holds", {"seconds": 60}), tasks.add("holds_sync", {"seconds": 60})]
        for task_id in added:
            tasks.wait_note(task_id, "begun")
        worker.signal(number)
        worker.wait_output("worker stopping")
        since = time.monotonic()
        worker.signal(number)
        ended = Exit(worker, since)
    assert ended.code == 130
    assert ended.after_s < 2
    assert ended.quiet(), ended.printed
    assert [tasks.status(task_id) for task_id in added] == ["queued", "queued"]
    assert value(tasks.connection, "SELECT max(attempt) FROM pgtasks.tasks") == 0


@pytest.mark.parametrize("away", ["stopped", "silent"])
@pytest.mark.parametrize("running", [True, False])
def test_sigterm_while_the_database_is_away(tasks: Tasks, away: str, running: bool) -> None:  # noqa: FBT001 - a parameter
    """S-02: out by the deadline and a second, with an exit code that says so; the work is done later."""
    grace_s = 1.0
    with Proxy(tasks.dsn) as proxy:
        env = {"PGTASKS_TEST_RELEASE": str(tasks.release)}
        flags = ("--shutdown-grace", str(grace_s), "--lease", "2", "--sweep-interval", "0.2")
        with WorkerProcess("tests.apps.tasks:app", proxy.dsn, *flags, env=env) as worker:
            worker.wait_ready()
            task_id = tasks.add("waits", {"seconds": 0.5} if running else {"seconds": 0})
            tasks.wait_status(task_id, "running" if running else "completed")
            if away == "silent":
                proxy.black_hole()
            else:
                proxy.refuse = True
                proxy.cut()
            since = time.monotonic()
            worker.terminate()
            ended = Exit(worker, since)
    assert ended.code == 1, ended.printed
    assert ended.after_s <= grace_s + 1
    with tasks.worker("--lease", "2", "--sweep-interval", "0.2"):
        tasks.wait_status(task_id, "completed")


def test_a_signal_while_waiting_for_the_database_at_the_start(tasks: Tasks) -> None:
    """S-02: a server that accepts and says nothing does not hold the process."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=60"
        with WorkerProcess("tests.apps.tasks:app", dsn) as worker:
            connection, _ = silent.accept()
            with connection:
                since = time.monotonic()
                worker.terminate()
                ended = Exit(worker, since)
    assert ended.code == 0, ended.printed
    assert ended.after_s < 2
    assert "Traceback" not in ended.printed


def test_a_signal_while_the_worker_introduces_itself(tasks: Tasks) -> None:
    """S-02: the schema was read, then the network fell silent."""
    with Proxy(tasks.dsn) as proxy:
        proxy.black_hole("finish")
        with WorkerProcess("tests.apps.tasks:app", proxy.dsn) as worker:
            wait_until(lambda: proxy.connections("finish"), hint=worker.output)
            since = time.monotonic()
            worker.terminate()
            ended = Exit(worker, since)
    assert ended.code == 0, ended.printed
    assert ended.after_s < 2
    assert "worker started" not in ended.printed


def test_what_arrives_after_the_signal_is_given_back_unstarted(tasks: Tasks) -> None:
    """S-01: a claim's reply that is late brings tasks to a worker that stops already."""
    with Proxy(tasks.dsn) as proxy, WorkerProcess("tests.apps.tasks:app", proxy.dsn) as worker:
        worker.wait_ready()
        tasks.wait_status(tasks.add("waits", {"seconds": 0}), "completed")
        proxy.delay_s = 0.7
        late = tasks.add("waits", {"seconds": 0})
        tasks.wait_status(late, "running")
        worker.terminate()
        ended = Exit(worker, time.monotonic())
    assert ended.code == 0, ended.printed
    assert rows(tasks.connection, "SELECT id, state, attempt FROM pgtasks.tasks") == [(late, "queued", 0)]
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.leases") == 0


@pytest.mark.parametrize("moment_s", [0.0, 0.2, 0.4, 0.7])
def test_a_signal_at_any_moment_of_the_start_ends_it(tasks: Tasks, moment_s: float) -> None:
    """S-02: nothing of it remains in the database; before Python runs, the system ends it."""
    with tasks.worker() as worker:
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun >= moment_s, interval_s=0.005)
        worker.terminate()
        ended = Exit(worker, time.monotonic())
    assert ended.code in {0, -signal.SIGTERM}
    assert ended.code == 0 or "worker started" not in ended.printed
    assert ended.after_s < 2
    assert "Traceback" not in ended.printed
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.leases") == 0


def test_a_third_signal_ends_the_process_on_the_spot(tasks: Tasks) -> None:
    """It ends even while it is flushing; others take the tasks when the lease ends."""
    with Proxy(tasks.dsn) as proxy, WorkerProcess("tests.apps.tasks:app", proxy.dsn) as worker:
        worker.wait_ready()
        tasks.wait_status(tasks.add("waits", {"seconds": 60}), "running")
        proxy.black_hole()
        for count in (1, 2, 3):
            worker.signal(signal.SIGINT)
            if count < 3:
                worker.wait_output(f"count={count}")
        ended = Exit(worker, time.monotonic())
    assert ended.code == 130
