"""systemd is told when a worker is ready, how it is, and that it is alive while it is."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtasks.health.pulse import Pulse
from pgtasks.health.systemd import Systemd
from tests.database import Connection, rows, value, wait_until
from tests.workers import WorkerProcess

WATCHDOG_USEC = 600_000


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(0.0)
        self.told: list[str] = []

    def heard(self) -> list[str]:
        """Return all lines so far."""
        while True:
            try:
                self.told += self.socket.recv(65536).decode().splitlines()
            except BlockingIOError:
                return self.told

    def variables(self) -> dict[str, str]:
        """Return what it gives its services."""
        return {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": str(WATCHDOG_USEC)}


ABSTRACT = pytest.param("abstract", marks=pytest.mark.skipif(sys.platform != "linux", reason="only Linux has them"))


@pytest.fixture(params=["path", ABSTRACT])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """A manager that listens."""
    made = Manager(str(tmp_path / "notify") if request.param == "path" else f"@pgtasks-test-{os.getpid()}")
    yield made
    made.socket.close()


def test_it_is_taken_from_the_environment() -> None:
    """Nobody else finds it there."""
    environ = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid()), "A": "b"}
    systemd = Systemd.take(environ)
    assert environ == {"A": "b"}
    assert systemd.listens
    assert systemd.watchdog_s == 3.0


@pytest.mark.parametrize(
    ("variables", "listens"),
    [
        ({}, False),
        ({"NOTIFY_SOCKET": "vsock:2:3", "WATCHDOG_USEC": "5"}, False),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}, True),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, True),
    ],
)
def test_a_watchdog_of_another_process_is_not_ours(variables: dict[str, str], listens: bool) -> None:  # noqa: FBT001 - a parameter
    """And what we cannot speak to is not there."""
    systemd = Systemd.take(dict(variables))
    assert (systemd.listens, systemd.watchdog_s) == (listens, 0.0)


def test_a_manager_that_is_gone_costs_nothing() -> None:
    """Nobody answers anyway."""
    Systemd("/nowhere/at/all").tell(READY="1")


def test_a_state_stays_in_its_line(manager: Manager) -> None:
    """A queue's name must not tell systemd something else."""
    Systemd(manager.address).tell(STATUS="serving a\nMAINPID=1 \ud800")
    assert manager.heard() == ["STATUS=serving a MAINPID=1 ?"]


def test_the_pulse_stops_while_something_hangs(manager: Manager) -> None:
    """Then systemd restarts the service, not because of any other failure; each reason is its status, told once."""
    failing, hangs = list[str](), list[str]()
    pulse = Pulse(Systemd(manager.address, 1.0), status=lambda: "busy", failing=lambda: failing, hangs=lambda: hangs)
    pulse.beat()
    pulse.beat()
    assert manager.heard() == ["STATUS=busy", "WATCHDOG=1", "WATCHDOG=1"]
    failing.append("no database")
    pulse.beat()
    pulse.beat()
    assert manager.heard()[3:] == ["STATUS=no database", "WATCHDOG=1", "WATCHDOG=1"]
    hangs.append("it hangs")
    pulse.beat()
    pulse.beat()
    assert manager.heard()[6:] == ["STATUS=it hangs"]


@pytest.mark.pg
@pytest.mark.timeout(60)
@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_a_worker_speaks_for_itself_and_a_supervisor_for_its_workers(
    dsn: str, connection: Connection, manager: Manager, processes: str
) -> None:
    """READY once, then signs of life, then STOPPING; what handlers start does not find the socket."""
    env = manager.variables()
    with WorkerProcess("tests.apps.watched:app", dsn, "--processes", processes, env=env) as worker:
        wait_until(lambda: manager.heard().count("WATCHDOG=1") >= 3 and "READY=1" in manager.told, 20)
        ((id,),) = rows(connection, "SELECT pgtasks.enqueue('variables')")
        wait_until(lambda: rows(connection, "SELECT 1 FROM pgtasks.history WHERE id = %s", id))
        names = value(connection, "SELECT result FROM pgtasks.history WHERE id = %s", id)
        assert "PGTASKS_DSN" in names
        assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(names)
        worker.terminate()
        assert worker.wait() == 0
    told = manager.heard()
    assert told.count("READY=1") == 1
    assert told.count("STOPPING=1") == 1
    assert told.index("READY=1") < told.index("STOPPING=1")
    assert any(line.startswith("STATUS=") for line in told)


@pytest.mark.pg
@pytest.mark.timeout(60)
@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_the_watchdog_spares_a_worker_that_waits_for_its_database(dsn: str, manager: Manager, tmp_path: Path) -> None:
    """Its claims fail, which systemd reads as its status; once they hang instead, it gets no sign of life."""
    hang = tmp_path / "hang"
    env = manager.variables() | {"PGTASKS_TEST_HANG": str(hang)}
    with WorkerProcess("tests.apps.watched:app", dsn, "--safety-poll", "0.5", env=env):
        wait_until(lambda: "READY=1" in manager.heard(), 20)
        hang.write_text("fail")
        wait_until(lambda: any("no progress" in line for line in manager.heard()), 15)
        # Fifteen beats are three seconds, twice the time for which this app's loop may stand still.
        beats = manager.heard().count("WATCHDOG=1")
        wait_until(lambda: manager.heard().count("WATCHDOG=1") >= beats + 15, 20)
        hang.write_text("hang")
        wait_until(lambda: _is_silent(manager), 20)


def _is_silent(manager: Manager) -> bool:
    """Tell whether the watchdog hears nothing for five beats."""
    before = manager.heard().count("WATCHDOG=1")
    time.sleep(WATCHDOG_USEC / 3e6 * 5)  # stands for the watchdog's patience
    return manager.heard().count("WATCHDOG=1") == before
