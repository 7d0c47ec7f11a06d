"""Real `pgtasks worker` processes, which never outlive the test that started them."""

import os
import signal
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Self

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.access import SUPERUSER, Role, as_role
from tests.database import ROOT, rows, wait_until

READY_LINE = "worker started"
# Run by its own interpreter: asks the kernel to be killed when the test process dies, then turns
# into the program. `subprocess` could do the first part only with a hook that must not be used
# in a process with threads.
_DIE_WITH_PARENT = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit(99)
os.execv(sys.argv[2], sys.argv[2:])
"""


def program(name: str = "pgtasks") -> str:
    """Return the path of a program that was installed beside this interpreter."""
    return str(Path(sys.executable).with_name(name))


def environment(dsn: str | None = None, role: Role | None = None, /, **variables: str) -> dict[str, str]:
    """Return the environment of a program under test, in which `tests.apps` can be imported.

    With an address it needs the role that the program has in production.
    """
    base = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    if dsn is not None:
        assert role is not None, "say as which role the program connects"
        base["PGTASKS_DSN"] = address = as_role(dsn, role)
        assert conninfo_to_dict(address).get("user") != SUPERUSER, "no program of pgtasks runs as superuser"
    return {**base, **variables}


def start(
    argv: list[str], env: dict[str, str], output: int, *, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a program that dies with this process; both its outputs go to the descriptor."""
    command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *argv]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdin=stdin, stdout=output, stderr=subprocess.STDOUT)


class WorkerProcess:
    """One `pgtasks worker APP` process, running from its construction on.

    It connects as the worker's role, whatever the address says. A context manager, which kills it in the
    end. All that it prints is in ``output()``.
    """

    def __init__(self, app: str, dsn: str, *flags: str, env: dict[str, str] | None = None) -> None:
        self.dsn = dsn
        with tempfile.NamedTemporaryFile(prefix="pgtasks-worker-", delete=False) as log:
            self._log = Path(log.name)
            argv = self.command(app, *flags)
            self.process = start(argv, environment(dsn, "worker", **(env or {})), log.fileno())

    @staticmethod
    def command(app: str, *flags: str) -> list[str]:
        """Give the command line."""
        return [program(), "worker", app, *flags]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:
            error.add_note(f"--- worker {self.pid} (exit code {self.process.returncode}) printed:\n{self.output()}")
        self._log.unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.process.poll() is None

    def output(self) -> str:
        """Return all that it has printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_ready(self, timeout_s: float = 15.0) -> Self:
        """Wait until it says that it started and is registered in the database."""
        wait_until(self._is_ready, timeout_s, hint=lambda: f"the worker is not ready; it printed:\n{self.output()}")
        return self

    def _is_ready(self) -> bool:
        if not self.running:
            raise AssertionError(f"the worker exited with {self.process.returncode}; it printed:\n{self.output()}")
        if READY_LINE not in self.output():
            return False
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return bool(rows(connection, "SELECT 1 FROM pgtasks.workers"))

    def wait_output(self, text: str, timeout_s: float = 10.0) -> None:
        """Wait until it has printed a text."""
        wait_until(lambda: text in self.output(), timeout_s, hint=lambda: f"no {text!r} in:\n{self.output()}")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def terminate(self) -> None:
        """Ask it to stop, as an init system does."""
        self.process.terminate()

    def wait(self, timeout_s: float = 15.0) -> int:
        """Wait for its end and return the exit code, negative for a signal."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker still runs after {timeout_s:g} s:\n{self.output()}") from None

    def kill(self) -> None:
        """Kill it with SIGKILL, if it still runs, and collect it."""
        self.process.kill()
        self.process.wait()
