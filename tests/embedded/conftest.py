"""Folders for servers, and the promise that no test leaves a process behind."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtasks import embedded
from tests.embedded.processes import AS_ROOT, processes_of, wait_until

# Each test takes a few seconds, but its servers write to a disk that others may keep busy.
TIMEOUT_S = 60


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder more time than others have."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def bindir() -> Path | None:
    """The server programs to test with; None for those of the installed wheel."""
    named = os.environ.get("PGTASKS_TEST_PG_BINDIR")
    return Path(named) if named else None


def make_open_folder() -> Path:
    """Make a folder that the server's account can reach, which pytest's own is not for root."""
    folder = Path(tempfile.mkdtemp(prefix="pgtasks-test-"))
    if AS_ROOT:
        folder.chmod(0o711)
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder for servers; after the test none may be left in it."""
    folder = make_open_folder()
    yield folder
    try:
        wait_until(lambda: not processes_of(folder))
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def new_state_dir(open_folder: Path) -> Iterator[Path]:
    """The state folder of a local server that was never started."""
    state = open_folder / "state"
    yield state
    embedded.stop_server(state, force=True)


@pytest.fixture(scope="session")
def used_state_dir(bindir: Path | None) -> Iterator[Path]:
    """A state folder whose server has run once; to be copied, which is faster than initdb."""
    yield from state_dir_of(bindir)


@pytest.fixture(scope="session")
def packaged_state_dir() -> Iterator[Path]:
    """As `used_state_dir`, made by the programs of the wheel, which the commands always use."""
    yield from state_dir_of(None)


def state_dir_of(bindir: Path | None) -> Iterator[Path]:
    """Make a state folder that a server has run in, and remove it at the end."""
    folder = make_open_folder()
    embedded.open_server(folder / "state", bindir=bindir, linger_s=0).close()
    wait_until(lambda: not processes_of(folder))
    yield folder / "state"
    shutil.rmtree(folder)


@pytest.fixture
def state_dir(new_state_dir: Path, used_state_dir: Path) -> Path:
    """The state folder of a local server that has a data directory and does not run."""
    copy_state(used_state_dir, new_state_dir)
    return new_state_dir


def copy_state(source: Path, target: Path) -> None:
    """Copy a state folder with its owners and permissions."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
