"""Any user has a local server: root's tests run a whole life of one as another user, too."""

import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pgtasks import embedded
from tests.embedded.processes import AS_ROOT, ROOT

pytestmark = pytest.mark.skipif(not AS_ROOT, reason="only root can become another user")

# The package without its __init__, because the interpreter has the standard library only.
LIFE = """
import os, sys, time, types
from pathlib import Path
package = types.ModuleType("pgtasks")
package.__path__ = [sys.argv[1]]
sys.modules["pgtasks"] = package
from pgtasks import embedded
state, bindir = Path(sys.argv[2]), Path(sys.argv[3])
with embedded.open_server(state, bindir=bindir, linger_s=600) as lease:
    with embedded.open_server(state, bindir=bindir) as other:
        assert other.server == lease.server
    assert lease.server.answers()
    owners = {os.stat(path).st_uid for path in [state, *state.iterdir()]}
    assert owners == {os.getuid()}, owners
    assert state.stat().st_mode & 0o777 == 0o700
    os.kill(lease.server.supervisor_pid, 9)
    deadline = time.monotonic() + 10
    while embedded.is_running(state) and time.monotonic() < deadline:
        time.sleep(0.01)
    lease.ensure()
assert embedded.stop_server(state)
with embedded.PrivateServer(bindir=bindir, options=embedded.FAST_OPTIONS) as server:
    assert server.running
print("lived")
"""


def run_as_nobody(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program as the user nobody, with this environment and no other variable."""
    entry = pwd.getpwnam("nobody")
    return subprocess.run(
        list(map(str, command)),
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def runs(interpreter: str) -> bool:
    """Whether nobody can run this interpreter."""
    try:
        return run_as_nobody(interpreter, "-c", "pass").returncode == 0
    except PermissionError:
        return False


def find_interpreter() -> str:
    """Find a Python of the same version that nobody can run, or skip the test."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        if candidate is not None and runs(candidate):
            return candidate
    pytest.skip(f"nobody can run no {version} here")


@pytest.fixture
def home(open_folder: Path) -> Path:
    """A home directory of the user nobody."""
    home = open_folder / "home"
    home.mkdir(mode=0o700)
    entry = pwd.getpwnam("nobody")
    shutil.chown(home, entry.pw_uid, entry.pw_gid)
    return home


@pytest.fixture
def programs(open_folder: Path, bindir: Path | None) -> Path:
    """The server's programs, copied to where every user can run them."""
    if bindir is not None:
        return bindir
    package = embedded.find_binaries().bindir.parent.parent
    shutil.copytree(package, open_folder / package.name, ignore=shutil.ignore_patterns("include"))
    libraries = package.parent / f"{package.name}.libs"
    if libraries.exists():
        shutil.copytree(libraries, open_folder / libraries.name)
    return open_folder / package.name / "pginstall" / "bin"


@pytest.mark.parametrize("environment", [{}, {"PATH": ""}, {"HOME": "/nonexistent", "PATH": ""}])
def test_an_ordinary_user_has_a_whole_server_life(
    open_folder: Path, home: Path, programs: Path, environment: dict[str, str]
) -> None:
    """Start, join, a killed supervisor, stop; without PATH and without HOME as well."""
    code = open_folder / "pgtasks"
    shutil.copytree(ROOT / "pgtasks", code, ignore=shutil.ignore_patterns("__pycache__"))
    done = run_as_nobody(
        find_interpreter(), "-c", LIFE, code, home / "state", programs, TMPDIR=str(home), **environment
    )
    assert done.stdout == "lived\n", done.stderr
