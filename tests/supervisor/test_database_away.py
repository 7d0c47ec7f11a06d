"""S-02 under a supervisor: a database that is away delays no stop."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.database import Connection, rows, wait_until
from tests.proxy import Proxy
from tests.supervisor.conftest import Supervise, Supervised, add_ticks, wait_started
from tests.trace import Trace

pytestmark = [pytest.mark.pg, pytest.mark.timeout(60)]
# On a busy machine.
SLOW_S = 2.0


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    """The way to the database."""
    with Proxy(dsn) as proxy:
        yield proxy


def stopped_after(supervised: Supervised) -> float:
    """Wait for the end and return after how long it came."""
    since = time.monotonic()
    supervised.process.wait(30)
    took_s = time.monotonic() - since
    print(f"stopped after {took_s:.2f} s")  # noqa: T201 - the figure, shown with -s
    return took_s


def go_away(proxy: Proxy, how: str) -> None:
    """Take the database away."""
    if how == "silent":
        proxy.black_hole()
    else:
        proxy.refuse = True
        proxy.cut()


@pytest.mark.parametrize("away", ["stopped", "silent"])
@pytest.mark.parametrize("running", [True, False])
def test_a_stop_ends_by_its_deadline(
    connection: Connection,
    supervise: Supervise,
    trace: Trace,
    proxy: Proxy,
    away: str,
    running: bool,  # noqa: FBT001 - a parameter
) -> None:
    """The grace time and a second, whether its workers had something to do or not; exit 1."""
    supervised = supervise("--shutdown-grace=1", address=proxy.dsn)
    supervised.wait_begun()
    if running:
        add_ticks(connection, 60, 4)
        wait_started(trace, 4)
    go_away(proxy, away)
    supervised.process.terminate()
    assert stopped_after(supervised) < 1 + 1 + SLOW_S
    assert supervised.process.wait() == 1


def test_a_second_signal_ends_it_within_two_seconds(
    connection: Connection, supervise: Supervise, trace: Trace, proxy: Proxy
) -> None:
    """Whatever is still to be given back."""
    supervised = supervise("--shutdown-grace=30", address=proxy.dsn)
    supervised.wait_begun()
    add_ticks(connection, 60, 4)
    wait_started(trace, 4)
    go_away(proxy, "silent")
    supervised.process.terminate()
    wait_until(lambda: len(supervised.said("worker stopping")) == 2)
    supervised.process.terminate()
    assert stopped_after(supervised) < 2 + SLOW_S
    assert supervised.process.wait() == 130


def test_a_second_signal_ends_the_wait_for_a_dead_workers_leases(supervise: Supervise, proxy: Proxy) -> None:
    """It died before the stop, and its leases cannot be given back: only so much of the grace time is spent on it."""
    supervised = supervise("--shutdown-grace=30", address=proxy.dsn)
    first, _ = supervised.wait_begun()
    go_away(proxy, "stopped")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: supervised.said("leases cannot be given back yet"))
    supervised.process.terminate()
    supervised.process.wait_output("worker stopping")
    supervised.process.terminate()
    assert stopped_after(supervised) < 2 + SLOW_S
    assert supervised.said("leases not given back")


def test_a_worker_that_crashes_in_a_stop_is_given_back(
    connection: Connection, supervise: Supervise, trace: Trace
) -> None:
    """It did not end by itself, so nobody has given back what it had."""
    supervised = supervise("--shutdown-grace=3")
    supervised.wait_begun()
    add_ticks(connection, 60, 4)
    wait_started(trace, 4)
    supervised.process.terminate()
    wait_until(lambda: len(supervised.said("worker stopping")) == 2)
    os.kill(trace.marks("start")[0].pid, signal.SIGKILL)
    assert supervised.process.wait(30) == 1
    assert rows(connection, "SELECT DISTINCT state FROM pgtasks.tasks") == [("queued",)]
