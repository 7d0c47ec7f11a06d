"""A private server does what its owner wants, and never outlives it."""

import os
import signal
import threading
from pathlib import Path

import psycopg
import pytest

from pgtasks import embedded
from tests.embedded.processes import alive, end, processes_of, read_line, start_python, wait_until
from tests.embedded.test_lease import ask

OWNER = """
import sys
from pathlib import Path
from pgtasks import embedded
bindir = Path(sys.argv[2]) if sys.argv[2] != "None" else None
server = embedded.PrivateServer(
    Path(sys.argv[1]), bindir=bindir, options=embedded.FAST_OPTIONS, death_watch=sys.argv[3]
)
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""

INTERRUPTED = """
import signal, sys
from pathlib import Path
from pgtasks import embedded
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
bindir = Path(sys.argv[2]) if sys.argv[2] != "None" else None
try:
    with embedded.PrivateServer(parent=Path(sys.argv[1]), bindir=bindir):
        print("started")
except KeyboardInterrupt:
    sys.exit(3)
"""


def test_it_makes_and_removes_its_own_folder(bindir: Path | None) -> None:
    """Nothing is left after `close`, and a second `close` is harmless."""
    with embedded.PrivateServer(bindir=bindir, options=embedded.FAST_OPTIONS) as server:
        assert ask(server.dsn, "SHOW fsync") == "off"
        assert ask(server.dsn_for("postgres"), "SELECT current_database()") == "postgres"
        assert server.version in str(ask(server.dsn, "SELECT version()"))
        directory = server.directory
        pid = server.pid
    assert pid is not None
    assert not alive(pid)
    assert not directory.exists()
    server.close()


def test_its_own_folder_can_be_made_elsewhere(open_folder: Path, bindir: Path | None) -> None:
    """On a disk, where that of temporary files is in memory; it is removed just the same."""
    with embedded.PrivateServer(parent=open_folder, bindir=bindir, options=embedded.FAST_OPTIONS) as server:
        assert server.directory.parent == open_folder
        assert ask(server.dsn, "SELECT 1") == 1
    assert not list(open_folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, embedded.StartError], ids=lambda error: error.__name__)
def test_a_start_that_fails_leaves_nothing(
    open_folder: Path, bindir: Path | None, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would remove the folder, for `__exit__` is not called."""
    server = embedded.PrivateServer(parent=open_folder, bindir=bindir, options=embedded.FAST_OPTIONS)
    start = server.start

    def interrupted() -> None:
        start()
        raise error

    monkeypatch.setattr(server, "start", interrupted)
    with pytest.raises(error), server:
        pytest.fail("started")
    assert not processes_of(open_folder)
    assert not list(open_folder.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupt_while_the_data_are_made_leaves_nothing(
    open_folder: Path, bindir: Path | None, number: signal.Signals
) -> None:
    """The initdb of that moment still writes into the folder, so it has to end before that is removed."""
    owner = start_python(INTERRUPTED, open_folder, bindir)
    wait_until(lambda: list(open_folder.glob("*/data.new")))
    owner.send_signal(number)
    assert owner.wait(40) == 3
    end(owner)
    assert not processes_of(open_folder)
    assert not list(open_folder.iterdir())


def test_it_stops_crashes_and_starts_again(open_folder: Path, bindir: Path | None) -> None:
    """Committed rows survive every kind of end, under the same address."""
    server = embedded.PrivateServer(open_folder / "server", bindir=bindir)
    with server.start():
        dsn = server.dsn
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE kept (value int)")
        for value, stop in enumerate((server.stop, lambda: server.stop("immediate"), server.kill)):
            with psycopg.connect(dsn) as connection:
                connection.execute("INSERT INTO kept VALUES (%s)", [value])
            stop()
            assert not server.running
            assert not processes_of(open_folder)
            server.start()
            assert ask(dsn, "SELECT count(*) FROM kept") == value + 1
    assert server.data_dir.exists()


def test_a_restart_can_change_its_settings(bindir: Path | None) -> None:
    """And keeps them when it is told none."""
    fast = embedded.FAST_OPTIONS
    with embedded.PrivateServer(bindir=bindir, options=fast) as server:
        server.restart(options={**fast, "max_connections": "17"})
        assert ask(server.dsn, "SHOW max_connections") == "17"
        old = server.pid
        server.restart("immediate")
        assert server.pid != old
        assert ask(server.dsn, "SHOW max_connections") == "17"


def test_over_tcp_it_asks_for_a_password(bindir: Path | None) -> None:
    """Any user of the machine can reach the port, so it must not trust."""
    with embedded.PrivateServer(bindir=bindir, options=embedded.FAST_OPTIONS, tcp=True) as server:
        dsn = server.tcp_dsn_for("postgres")
        assert ask(dsn, "SELECT inet_server_port()") == server.port
        without = f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres"
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(without, passfile="/nonexistent")
        server.restart("immediate")
        assert server.tcp_dsn_for("postgres") == dsn
        assert ask(dsn, "SELECT 1") == 1
        assert ":7/" in server.tcp_dsn_for(port=7)


def test_without_tcp_there_is_no_tcp_address(open_folder: Path, bindir: Path | None) -> None:
    """The message says how to get one."""
    with pytest.raises(embedded.EmbeddedError, match="tcp=True"):
        embedded.PrivateServer(open_folder / "server", bindir=bindir).tcp_dsn_for()


@pytest.mark.parametrize("death_watch", ["prctl", "watch"])
def test_it_dies_with_its_owner(open_folder: Path, bindir: Path | None, death_watch: str) -> None:
    """By the kernel's signal, and where there is none by a watching process."""
    owner = start_python(OWNER, open_folder / "server", bindir, death_watch)
    pid = int(read_line(owner))
    assert alive(pid)
    end(owner)
    wait_until(lambda: not processes_of(open_folder))
    with embedded.PrivateServer(open_folder / "server", bindir=bindir) as server:
        assert ask(server.dsn, "SELECT 1") == 1


def test_the_watcher_ends_with_the_server(open_folder: Path, bindir: Path | None) -> None:
    """It neither stays behind nor keeps the lock of the directory."""
    with embedded.PrivateServer(
        open_folder / "server", bindir=bindir, options=embedded.FAST_OPTIONS, death_watch="watch"
    ) as server:
        server.restart("immediate")
        server.kill()
        server.start()
        assert ask(server.dsn, "SELECT 1") == 1


def test_it_outlives_the_thread_that_started_it(bindir: Path | None) -> None:
    """The parent-death signal of Linux is about threads; a server is about processes."""
    server = embedded.PrivateServer(bindir=bindir, options=embedded.FAST_OPTIONS)
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
    with server:
        assert ask(server.dsn, "SELECT 1") == 1
        assert server.running


def test_two_servers_cannot_share_a_directory(open_folder: Path, bindir: Path | None) -> None:
    """The second one gives up when its time is over."""
    first = embedded.PrivateServer(open_folder / "server", bindir=bindir)
    second = embedded.PrivateServer(open_folder / "server", bindir=bindir)
    with first, pytest.raises(embedded.StartError, match="still runs"):
        second.start(timeout_s=0.2)
    with second:
        assert ask(second.dsn, "SELECT 1") == 1


def test_a_server_that_ended_by_itself_is_noticed(bindir: Path | None) -> None:
    """`running` asks the kernel, not a variable."""
    with embedded.PrivateServer(bindir=bindir, options=embedded.FAST_OPTIONS) as server:
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.pid is None)
        assert not server.running
        server.start()
        assert ask(server.dsn, "SELECT 1") == 1


@pytest.mark.skipif(not Path("/proc/sysvipc/shm").exists(), reason="Linux lists its shared memory")
def test_a_killed_server_leaves_no_shared_memory(bindir: Path | None) -> None:
    """Although nobody starts a server on its directory again."""

    def segments() -> set[str]:
        lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        return {line.split()[1] for line in lines if line.split()[6] == "0"}

    before = segments()
    with embedded.PrivateServer(bindir=bindir, options=embedded.FAST_OPTIONS) as server:
        server.kill()
        assert segments() - before
    assert not segments() - before
