"""What the supervisor decides, with one that runs within the test."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtasks import embedded
from pgtasks.embedded import supervisor as supervisors
from pgtasks.embedded.account import server_account
from pgtasks.embedded.cluster import Cluster
from pgtasks.embedded.state import State
from pgtasks.embedded.supervisor import Supervisor
from tests.embedded.processes import wait_until


class Supervised:
    """A supervisor in a thread, with everything that it said."""

    def __init__(self, folder: Path, bindir: Path | None) -> None:
        self.said: list[str] = []
        self.state = State(folder)
        programs = embedded.find_binaries(bindir)
        self.cluster = Cluster(folder, programs, server_account(), options=embedded.FAST_OPTIONS)
        self.supervisor = Supervisor(self.state, self.cluster, start_timeout_s=30, say=self.said.append)
        self.state.ask_linger_s(600)
        self.server = self.supervisor.start()
        self.thread = threading.Thread(target=self.supervisor.serve)
        self.thread.start()

    def ended(self) -> bool:
        """Whether the supervisor has done all it had to do."""
        return not self.thread.is_alive()


def wait_until_served(supervised: Supervised, starts: int) -> None:
    """Wait until the server was started that many times."""
    wait_until(lambda: sum(line.startswith("serving") for line in supervised.said) == starts)


@pytest.fixture
def supervised(state_dir: Path, bindir: Path | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    """A supervisor that serves, and that is stopped if the test did not do it."""
    monkeypatch.setattr(supervisors, "TICK_S", 0.02)
    one = Supervised(state_dir, bindir)
    yield one
    if not one.ended():
        one.state.stop_request.touch()
        one.thread.join()


def test_it_stops_when_nobody_came_for_as_long_as_it_lingers(supervised: Supervised) -> None:
    """It announces the server before, and withdraws it."""
    assert supervised.state.read_server() == supervised.server
    supervised.state.forget_linger()
    wait_until(supervised.ended)
    assert "stopping: nobody uses it" in supervised.said
    assert supervised.state.read_server() is None
    assert not supervised.cluster.is_running()


def test_it_stops_when_it_is_asked(supervised: Supervised) -> None:
    """And says that it has by removing the request."""
    supervised.state.stop_request.touch()
    wait_until(supervised.ended)
    assert "stopping: a stop was requested" in supervised.said
    assert not supervised.state.stop_request.exists()


def test_it_gives_up_on_a_server_that_dies_too_often(supervised: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each restart takes resources, and a broken server does not get better by it."""
    monkeypatch.setattr(supervisors, "RESTARTS_MAX", 2)
    for restarts in range(3):
        wait_until_served(supervised, restarts + 1)
        announced = supervised.state.read_server()
        assert announced is not None
        os.kill(announced.server_pid, signal.SIGKILL)
    wait_until(supervised.ended)
    assert "stopping: postgres died too often" in supervised.said


def test_it_gives_up_on_a_server_that_does_not_start_any_more(supervised: Supervised) -> None:
    """With PostgreSQL's own reason."""
    configuration = supervised.cluster.data_dir / "postgresql.conf"
    configuration.write_text("nonsense")
    os.kill(supervised.server.server_pid, signal.SIGKILL)
    wait_until(supervised.ended)
    assert any("syntax error in file" in line for line in supervised.said)
    assert "stopping: postgres does not start any more" in supervised.said


def test_it_kills_the_server_of_a_folder_that_was_removed(supervised: Supervised) -> None:
    """A new server may run under the same path by then, and nothing of it is touched."""
    shutil.rmtree(supervised.state.folder)
    supervised.state.folder.mkdir(mode=0o711)
    supervised.state.announce(supervised.server)
    wait_until(supervised.ended)
    assert "stopping: the state folder was removed" in supervised.said
    assert not supervised.cluster.is_running()
    assert supervised.state.read_server() == supervised.server


def test_it_limits_the_servers_log(supervised: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was in it is kept once more, and the server goes on writing into the same file."""
    with psycopg.connect(supervised.server.dsn, autocommit=True) as connection:
        connection.execute("DO $$ BEGIN RAISE LOG 'first message'; END $$")
        monkeypatch.setattr(supervisors, "LOG_BYTES_MAX", 1)
        old = supervised.cluster.log_path.with_suffix(".log.1")
        wait_until(lambda: old.exists() and "first message" in old.read_text())
        monkeypatch.undo()
        connection.execute("DO $$ BEGIN RAISE LOG 'second message'; END $$")
    wait_until(lambda: "second message" in supervised.cluster.log_path.read_text())
    assert "first message" not in supervised.cluster.log_path.read_text()
