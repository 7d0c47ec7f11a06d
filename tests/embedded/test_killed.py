"""Whoever is killed, no server stays behind and the next client gets a good one."""

import os
import signal
from pathlib import Path

import psycopg
import pytest

from pgtasks import embedded
from tests.embedded.processes import alive, end, processes_of, read_line, start_python, wait_until

CLIENT = """
import sys
from pathlib import Path
from pgtasks import embedded
bindir = Path(sys.argv[2]) if sys.argv[2] != "None" else None
lease = embedded.open_server(Path(sys.argv[1]), bindir=bindir, linger_s=0)
print(lease.server.server_pid, lease.started, flush=True)
sys.stdin.read()
"""


def test_the_server_of_a_killed_client_stops(state_dir: Path, bindir: Path | None) -> None:
    """The kernel takes the client's lock away, and the supervisor sees that nobody is left."""
    client = start_python(CLIENT, state_dir, bindir)
    server_pid = int(read_line(client).split()[0])
    assert alive(server_pid)
    end(client)
    wait_until(lambda: not alive(server_pid))
    wait_until(lambda: not processes_of(state_dir))


def test_a_killed_starter_takes_nothing_from_the_others(state_dir: Path, bindir: Path | None) -> None:
    """The server lives for the second client, and stops when that is killed too."""
    clients = [start_python(CLIENT, state_dir, bindir)]
    pids = [read_line(clients[0]).split()[0]]
    clients.append(start_python(CLIENT, state_dir, bindir))
    pids.append(read_line(clients[1]).split()[0])
    assert pids[0] == pids[1]
    end(clients[0])
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        assert lease.server.server_pid == int(pids[0])
    end(clients[1])
    wait_until(lambda: not processes_of(state_dir))


def test_postgres_dies_with_a_killed_supervisor(state_dir: Path, bindir: Path | None) -> None:
    """No client notices and asks for it; the kernel does."""
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        os.kill(lease.server.supervisor_pid, signal.SIGKILL)
        wait_until(lambda: not processes_of(state_dir))


def test_the_next_client_replaces_a_killed_supervisor(state_dir: Path, bindir: Path | None) -> None:
    """At once, while the old server may still be dying, and no committed row is lost."""
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as old:
        with psycopg.connect(old.dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS value")
        os.kill(old.server.supervisor_pid, signal.SIGKILL)
        wait_until(lambda: not alive(old.server.supervisor_pid))
        with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as new:
            assert new.started
            assert new.server.server_pid != old.server.server_pid
            assert new.dsn == old.dsn
            with psycopg.connect(new.dsn) as connection:
                assert connection.execute("SELECT value FROM kept").fetchone() == (42,)
            assert old.ensure() == new.dsn


def test_stale_files_of_a_killed_server_are_overwritten(state_dir: Path, bindir: Path | None) -> None:
    """The announcement, the socket, the pid file and a stop request mislead nobody."""
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        os.kill(lease.server.server_pid, signal.SIGSTOP)
        os.kill(lease.server.supervisor_pid, signal.SIGKILL)
        os.kill(lease.server.server_pid, signal.SIGKILL)
        wait_until(lambda: not processes_of(state_dir))
    assert (state_dir / "server.json").exists()
    assert (state_dir / "data" / "postmaster.pid").exists()
    (state_dir / "stop.request").touch()
    assert not embedded.stop_server(state_dir)
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        assert lease.started
        psycopg.connect(lease.dsn).close()


def test_a_killed_postgres_is_started_again_under_the_same_address(state_dir: Path, bindir: Path | None) -> None:
    """So a client that reconnects goes on, and need not know of leases."""
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        os.kill(lease.server.server_pid, signal.SIGKILL)

        def answers() -> bool:
            try:
                psycopg.connect(lease.dsn).close()
            except psycopg.OperationalError:
                return False
            return True

        wait_until(lambda: not alive(lease.server.server_pid))
        wait_until(answers)
        with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as other:
            assert not other.started
            assert other.server.server_pid != lease.server.server_pid


def test_a_data_directory_that_was_being_made_is_made_again(new_state_dir: Path, bindir: Path | None) -> None:
    """Client and supervisor are killed during initdb; that dies with them."""
    state_dir = new_state_dir
    client = start_python(CLIENT, state_dir, bindir)
    wait_until((state_dir / "data.new" / "base").exists)
    supervisors = [line for line in processes_of(state_dir) if "pgtasks.embedded" in line]
    end(client)
    for line in supervisors:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    wait_until(lambda: not processes_of(state_dir))
    assert (state_dir / "data.new").exists()
    assert not (state_dir / "data").exists()
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        psycopg.connect(lease.dsn).close()
    assert not (state_dir / "data.new").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_supervisor_that_is_asked_to_end_stops_its_server(
    state_dir: Path, bindir: Path | None, number: signal.Signals
) -> None:
    """As when the machine shuts down: postgres has written everything out."""
    with embedded.open_server(state_dir, bindir=bindir, linger_s=600) as lease:
        os.kill(lease.server.supervisor_pid, number)
        wait_until(lambda: not processes_of(state_dir))
    assert "database system is shut down" in (state_dir / "server.log").read_text()
    assert not (state_dir / "server.json").exists()
