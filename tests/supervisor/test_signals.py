"""The supervisor outlives its workers: it passes signals on, waits, kills who is late, and gives back."""

import os
import signal
import time

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.supervisor.conftest import Supervise, add_ticks, wait_started
from tests.trace import Trace

pytestmark = [pytest.mark.pg, pytest.mark.timeout(60)]


def test_sigterm_to_all_processes_drains_them_once(connection: Connection, supervise: Supervise, trace: Trace) -> None:
    """As systemd stops a service: running tasks finish with all their grace time, exit 0."""
    supervised = supervise("--shutdown-grace=20")
    workers = supervised.wait_begun()
    add_ticks(connection, 1.5, 4)
    wait_started(trace, 4)
    for pid in (*workers, supervised.process.pid):
        os.kill(pid, signal.SIGTERM)
    assert supervised.process.wait() == 0
    assert len(trace.marks("end")) == 4
    assert not trace.marks("cancelled")
    assert value(connection, "SELECT count(*) FROM pgtasks.history") == 4
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0
    assert len(supervised.said("worker process started")) == 2
    assert supervised.said("supervisor stopped")


def test_a_second_signal_skips_the_grace_time(connection: Connection, supervise: Supervise, trace: Trace) -> None:
    """Ctrl-C twice: tasks are given back uncharged by their own workers, exit 130."""
    supervised = supervise()
    supervised.wait_begun()
    add_ticks(connection, 60, 4)
    wait_started(trace, 4)
    supervised.process.signal(signal.SIGINT)
    wait_until(lambda: len(supervised.said("worker stopping")) == 2)
    since = time.monotonic()
    supervised.process.signal(signal.SIGINT)
    assert supervised.process.wait() == 130
    assert time.monotonic() - since < 6
    assert rows(connection, "SELECT DISTINCT state, attempt, lease_id FROM pgtasks.tasks") == [("queued", 0, None)]
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0


def test_a_third_signal_kills_and_what_ran_is_given_back(
    connection: Connection, supervise: Supervise, trace: Trace
) -> None:
    """Workers that heed nothing, here because they are stopped, are killed; their leases do not outlive them."""
    supervised = supervise()
    workers = supervised.wait_begun()
    add_ticks(connection, 60, 4)
    wait_started(trace, 4)
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    for count in (1, 2, 3):
        supervised.process.signal(signal.SIGTERM)
        supervised.process.wait_output(f"count={count}")
    assert supervised.process.wait() == 130
    assert rows(connection, "SELECT DISTINCT state, attempt FROM pgtasks.tasks") == [("queued", 1)]
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0
    assert value(connection, "SELECT DISTINCT outcome FROM pgtasks.attempts") == "worker_lost"


def test_killed_it_leaves_no_worker_behind(connection: Connection, supervise: Supervise, trace: Trace) -> None:
    """SIGKILL of the supervisor: its workers finish what runs, and end."""
    supervised = supervise()
    supervised.wait_begun()
    add_ticks(connection, 1, 4)
    wait_started(trace, 4)
    os.kill(supervised.process.pid, signal.SIGKILL)
    wait_until(lambda: not value(connection, "SELECT count(*) FROM pgtasks.workers"), 15)
    assert len(trace.marks("end")) == 4
    wait_until(lambda: len(supervised.said("worker stopped")) == 2)


def test_a_signal_while_the_first_worker_starts_ends_all(supervise: Supervise) -> None:
    """Exit 0, whatever the worker has got to."""
    supervised = supervise()
    wait_until(lambda: supervised.said("worker process started"))
    supervised.process.terminate()
    assert supervised.process.wait() == 0
    assert len(supervised.said("worker process started")) == 1


def test_a_drain_ends_when_all_workers_have(connection: Connection, supervise: Supervise, trace: Trace) -> None:
    """One of them is killed meanwhile: what it ran is drained too, and the exit code is 0."""
    add_ticks(connection, 1.5, 4)
    supervised = supervise("--drain", "--children=2")
    wait_started(trace, 1, 15)
    os.kill(trace.marks("start")[0].pid, signal.SIGKILL)
    assert supervised.process.wait(30) == 0, supervised.process.output()
    assert value(connection, "SELECT count(*) FROM pgtasks.history") == 4
