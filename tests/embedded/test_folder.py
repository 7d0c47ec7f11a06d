"""Where a server keeps its files, and what is refused with which advice."""

import os
import pwd
import shutil
import stat
from pathlib import Path

import psycopg
import pytest

from pgtasks import embedded
from pgtasks.embedded import account as accounts
from pgtasks.embedded import folder as folders
from tests.embedded.processes import AS_ROOT, alive, processes_of, wait_until

only_root = pytest.mark.skipif(not AS_ROOT, reason="only root runs servers under another account")
not_root = pytest.mark.skipif(AS_ROOT, reason="root may do everything")


def test_the_variable_names_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument goes before it, and a tilde is the home directory."""
    monkeypatch.setenv("PGTASKS_EMBEDDED_DIR", "~/elsewhere")
    assert embedded.state_folder() == Path.home() / "elsewhere"
    assert embedded.state_folder(Path("/given")) == Path("/given")


def test_the_default_folder_follows_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root has one below /var/lib, everybody else one below the folder for state."""
    monkeypatch.delenv("PGTASKS_EMBEDDED_DIR", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert embedded.state_folder() == Path("/var/lib/pgtasks-embedded")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert embedded.state_folder() == Path("/state/pgtasks/embedded")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert embedded.state_folder() == Path.home() / ".local/state/pgtasks/embedded"


def test_without_home_the_user_database_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """And when that does not know either, the message names the variable."""
    for name in ("PGTASKS_EMBEDDED_DIR", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert embedded.state_folder().is_relative_to(home)

    def no_home(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", no_home)
    with pytest.raises(embedded.StateFolderError, match="PGTASKS_EMBEDDED_DIR"):
        embedded.state_folder()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The message has the reason and the way out."""
    (tmp_path / "file").touch()
    with pytest.raises(embedded.StateFolderError, match=r"file/state.*PGTASKS_EMBEDDED_DIR"):
        embedded.open_server(tmp_path / "file" / "state")


@not_root
def test_a_read_only_home_is_named(tmp_path: Path) -> None:
    """As in a container without a writable home directory."""
    tmp_path.chmod(0o500)
    with pytest.raises(embedded.StateFolderError, match="Permission denied"):
        embedded.open_server(tmp_path / "state")


def test_a_folder_that_others_can_change_is_refused(open_folder: Path) -> None:
    """And its permissions stay as they are: it may not be ours to change."""
    state = open_folder / "state"
    state.mkdir()
    state.chmod(0o777)
    with pytest.raises(embedded.StateFolderError, match="chmod go-w"):
        embedded.open_server(state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o777


@only_root
def test_a_folder_of_another_user_is_refused(open_folder: Path) -> None:
    """Root would leave files there that their owner cannot remove."""
    state = open_folder / "state"
    state.mkdir()
    os.chown(state, pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(embedded.StateFolderError, match="belongs to user id"):
        embedded.open_server(state)


@only_root
def test_a_folder_that_the_account_cannot_reach_is_refused(open_folder: Path) -> None:
    """The message names the folder that is in the way, and nothing is opened up for it."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(embedded.StateFolderError, match=rf"permissions of {closed}\. Set PGTASKS"):
        embedded.open_server(closed / "state")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@only_root
def test_the_server_of_root_runs_as_another_user(state_dir: Path, bindir: Path | None) -> None:
    """Its data belong to that user, and everything beside them to root."""
    account = accounts.server_account()
    assert account is not None
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as lease:
        status = Path(f"/proc/{lease.server.server_pid}/status").read_text().splitlines()
        fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        assert set(fields["Uid"].split()) == {str(account.uid)}
        assert set(fields["Gid"].split()) == {str(account.gid)}
        assert set(map(int, fields["Groups"].split())) == set(account.groups)
        owners = {path.name: path.stat().st_uid for path in state_dir.iterdir()}
    theirs = {name for name, owner in owners.items() if owner == account.uid}
    assert theirs == {"data", "socket"}
    assert set(owners.values()) == {0, account.uid}


def test_a_path_too_long_for_a_socket_gets_a_short_folder(open_folder: Path, bindir: Path | None) -> None:
    """It is private too, and removed with the server."""
    state = open_folder / ("long" * 25) / "state"
    with embedded.open_server(state, bindir=bindir, linger_s=0) as lease:
        socket_dir = Path(lease.server.socket_dir)
        assert not socket_dir.is_relative_to(state)
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
        psycopg.connect(lease.dsn).close()
    wait_until(lambda: not processes_of(state))
    assert not socket_dir.exists()


def test_a_short_folder_of_somebody_else_is_refused(open_folder: Path) -> None:
    """Who makes it first could pretend to be the server."""
    state = open_folder / ("long" * 25) / "state"
    short = folders.socket_folder(state, 5432)
    short.mkdir(mode=0o755)
    short.chmod(0o755)
    try:
        with pytest.raises(embedded.StateFolderError, match=str(short)):
            embedded.open_server(state, linger_s=0)
    finally:
        short.rmdir()


def test_no_folder_for_sockets_is_short_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the limit."""
    monkeypatch.setattr(folders, "SOCKET_PATH_BYTES_MAX", 10)
    with pytest.raises(embedded.StateFolderError, match="longer than the 10 bytes"):
        folders.socket_folder(Path("/somewhere"), 5432)


def test_leftovers_of_a_half_made_data_directory_are_replaced(new_state_dir: Path, bindir: Path | None) -> None:
    """`data.new` is ours to remove; a `data` without a control file is moved aside instead."""
    with embedded.PrivateServer(new_state_dir, bindir=bindir, options=embedded.FAST_OPTIONS):
        pass
    (new_state_dir / "data" / "global" / "pg_control").unlink()
    (new_state_dir / "data.new").mkdir()
    (new_state_dir / "data.new" / "junk").touch()
    with embedded.open_server(new_state_dir, bindir=bindir, linger_s=0) as lease:
        psycopg.connect(lease.dsn).close()
    assert not (new_state_dir / "data.new").exists()
    (aside,) = new_state_dir.glob("data.broken-*")
    assert (aside / "PG_VERSION").exists()


def test_data_of_another_major_version_are_left_alone(state_dir: Path, bindir: Path | None) -> None:
    """The message names both versions."""
    (state_dir / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(embedded.StartError, match=r"made by PostgreSQL 9, and the programs are"):
        embedded.open_server(state_dir, bindir=bindir)


def test_a_server_that_was_started_by_hand_is_not_disturbed(state_dir: Path, bindir: Path | None) -> None:
    """Two servers on one data directory would destroy it; PostgreSQL itself refuses."""
    with embedded.PrivateServer(state_dir, bindir=bindir) as by_hand:
        # It does not hold the lock that our own servers hold.
        (state_dir / "server.lock").unlink()
        with pytest.raises(embedded.StartError, match="still in use"):
            embedded.open_server(state_dir, bindir=bindir)
        assert by_hand.running
        shutil.rmtree(state_dir / "socket", ignore_errors=True)


def test_a_folder_that_is_removed_under_a_running_server_is_made_again(state_dir: Path, bindir: Path | None) -> None:
    """By the next client, at once; the old server ends without touching the new one."""
    with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as old:
        shutil.rmtree(state_dir)
        with embedded.open_server(state_dir, bindir=bindir, linger_s=0) as new:
            assert new.started
            wait_until(lambda: not alive(old.server.supervisor_pid))
            assert not alive(old.server.server_pid)
            psycopg.connect(new.dsn).close()
