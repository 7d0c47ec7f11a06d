"""A local server runs while somebody holds a lease, and not much longer."""

import os
from pathlib import Path

import psycopg
import pytest

from pgtasks import embedded
from tests.embedded.processes import alive, wait_until


def ask(dsn: str, sql: str) -> object:
    """Return the first value that a query gives."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(sql.encode()).fetchone()
    assert row is not None
    return row[0]


def test_the_first_lease_starts_the_server_and_the_next_one_joins(state_dir: Path, bindir: Path | None) -> None:
    """Both get the same address, and it leads to the database pgtasks as superuser."""
    with (
        embedded.open_server(state_dir, bindir=bindir, linger_s=0) as first,
        embedded.open_server(state_dir, bindir=bindir, linger_s=0) as second,
    ):
        assert (first.started, second.started) == (True, False)
        assert first.server == second.server
        assert ask(second.dsn, "SELECT current_database() || ' ' || current_user") == ("pgtasks postgres")


def test_the_server_stops_when_the_last_lease_is_closed(state_dir: Path, bindir: Path | None) -> None:
    """It stays for the second client when the first one leaves."""
    first = embedded.open_server(state_dir, bindir=bindir, linger_s=0)
    second = embedded.open_server(state_dir, bindir=bindir, linger_s=0)
    first.close()
    first.close()
    assert ask(second.dsn, "SELECT 1") == 1
    second.close()
    wait_until(lambda: not embedded.is_running(state_dir))
    assert not alive(second.server.server_pid)


def test_data_outlives_the_server(state_dir: Path, bindir: Path | None) -> None:
    """The next start finds what was written, and makes no new data directory."""
    with (
        embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease,
        psycopg.connect(lease.dsn) as connection,
    ):
        connection.execute("CREATE TABLE kept AS SELECT 42 AS value")
    wait_until(lambda: not embedded.is_running(state_dir))
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        assert lease.started
        assert ask(lease.dsn, "SELECT value FROM kept") == 42


def test_the_server_lingers_for_as_long_as_any_client_asked(state_dir: Path, bindir: Path | None) -> None:
    """A later client that asks for less does not shorten it."""
    with embedded.open_server(state_dir, bindir=bindir, linger_s=600) as lease:
        embedded.open_server(state_dir, bindir=bindir, linger_s=0).close()
    with embedded.open_server(state_dir, bindir=bindir) as again:
        assert not again.started
        assert again.server == lease.server


def test_an_open_connection_without_a_lease_keeps_the_server(state_dir: Path, bindir: Path | None) -> None:
    """As that of a psql that somebody opened with the address alone."""
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        connection = psycopg.connect(lease.dsn)
    with pytest.raises(embedded.ServerBusyError, match="1 open connection"):
        embedded.stop_server(state_dir)
    assert connection.execute("SELECT 1").fetchone() == (1,)
    connection.close()
    wait_until(lambda: not embedded.is_running(state_dir))


def test_a_forked_child_holds_the_lease_of_its_parent(state_dir: Path, bindir: Path | None) -> None:
    """The server stops when the child is gone, not when the parent closes its copy."""
    lease = embedded.open_server(state_dir, bindir=bindir, linger_s=0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    lease.close()
    with pytest.raises(embedded.ServerBusyError):
        embedded.stop_server(state_dir)
    os.close(writer)
    os.waitpid(child, 0)
    wait_until(lambda: not embedded.is_running(state_dir))


def test_options_are_settings_of_the_server(state_dir: Path, bindir: Path | None) -> None:
    """They count for the start, and a value may hold what a shell would take for itself."""
    options = {"work_mem": "7MB", "application_name": "a 'quoted' $HOME"}
    with embedded.open_server(state_dir, bindir=bindir, options=options, linger_s=0) as lease:
        assert ask(lease.dsn, "SHOW work_mem") == "7MB"
        value = ask(lease.dsn, "SELECT reset_val FROM pg_settings WHERE name = 'application_name'")
        assert value == "a 'quoted' $HOME"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("listen_addresses", "cannot be chosen"),
        ("Port", "cannot be chosen"),
        ("work_mem=1;x", "not the name"),
        ("", "not the name"),
    ],
)
def test_options_that_would_break_the_server_are_refused(open_folder: Path, name: str, message: str) -> None:
    """Before anything is started or written."""
    with pytest.raises(embedded.EmbeddedError, match=message):
        embedded.open_server(open_folder / "state", options={name: "1"})
    assert not (open_folder / "state").exists()


def test_a_server_that_refuses_a_setting_says_so(state_dir: Path, bindir: Path | None) -> None:
    """The message has PostgreSQL's own words, and the next start works."""
    with pytest.raises(embedded.StartError, match="shared_buffers"):
        embedded.open_server(state_dir, bindir=bindir, options={"shared_buffers": "many"})
    wait_until(lambda: not embedded.is_running(state_dir))
    embedded.open_server(state_dir, bindir=bindir, linger_s=0).close()


def test_the_server_is_durable_and_has_no_tcp_port(state_dir: Path, bindir: Path | None) -> None:
    """These are the settings that a local server promises."""
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        promised = {
            "fsync": "on",
            "full_page_writes": "on",
            "synchronous_commit": "on",
            "listen_addresses": "",
            "unix_socket_permissions": "0700",
            "max_connections": "100",
        }
        assert {name: ask(lease.dsn, f"SHOW {name}") for name in promised} == promised
        socket_dir = Path(lease.server.socket_dir)
    for private in (socket_dir, state_dir / "data"):
        assert private.stat().st_mode & 0o777 == 0o700


def test_a_server_that_was_not_stopped_is_asked_to_stop(state_dir: Path, bindir: Path | None) -> None:
    """A lingering server stops at once; one in use only by force; none is no error."""
    assert not embedded.stop_server(state_dir)
    with embedded.open_server(state_dir, bindir=bindir, linger_s=600) as lease:
        with pytest.raises(embedded.ServerBusyError, match="in use by another program"):
            embedded.stop_server(state_dir)
        assert embedded.stop_server(state_dir, force=True)
        assert not alive(lease.server.server_pid)
        lease.ensure()
    assert embedded.stop_server(state_dir)
    assert not embedded.is_running(state_dir)
    assert not (state_dir / "server.json").exists()
