"""Rivals on Redis: each run has a server of its own, as durable as PostgreSQL is."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from bench import machine
from bench.database import Bench
from bench.rivals import install
from bench.rivals.rival import SCRIPTS, Command, Place, Rival, Unavailable

# Each write is on the disk before it is answered, as with PostgreSQL's defaults. Snapshots, which
# Redis would make beside that log, are off: they would cost and add nothing.
SERVER = {"port": "0", "appendonly": "yes", "appendfsync": "always", "save": ""}
DURABILITY = (
    "A Redis of its own on a Unix socket, with appendonly yes, appendfsync always (each write is on the disk "
    "before it is answered, as with PostgreSQL) and no snapshots beside that."
)
# More than any of them can run in the time a run is given; Redis holds its tasks in memory.
MOST_TASKS = 500_000
_START_S, _STOP_S, _ANSWER_S = 20.0, 20.0, 60.0


class RedisRival(Rival):
    """One whose script `scripts/<name>_script.py` fills the queue, and is the module that its worker loads."""

    # What the script configures it with; the best that we found, beside what its authors say.
    options: ClassVar[Mapping[str, Any]] = {}
    # Neither can say when the last handler has run: they are spread over processes.
    says_last = False

    def install(self) -> None:
        """Install it into an environment of its own."""
        _program()
        install.python_environment(self.folder, self.packages)

    @contextmanager
    def place(self, bench: Bench) -> Iterator[Place]:  # noqa: ARG002  # the measured server is not used
        """Start a Redis, on the disk that the measured server is on; it is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="pgtasks-redis-", dir=machine.disk_folder()) as folder:
            path = Path(folder) / "redis.sock"
            settings = [part for name, value in SERVER.items() for part in (f"--{name}", value)]
            server = subprocess.Popen(
                [_program(), *settings, "--dir", folder, "--unixsocket", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            try:
                _wait_for(path, server)
                yield Place(str(path), database=None, server_pid=server.pid)
            finally:
                server.kill()
                server.wait(_STOP_S)

    def prepare(self, dsn: str) -> None:
        """Do nothing: there is no schema."""

    def fill(self, dsn: str, tasks: int) -> int:
        """Start from an empty server, and push messages like the one that its own API makes; MOST_TASKS at most."""
        self._filled = min(tasks, MOST_TASKS)
        ask(dsn, "FLUSHALL")
        command = self.command([str(self.folder / "bin" / "python"), str(self._script)], dsn)
        install.checked([*command.argv, "fill", str(self._filled)], env=command.env)
        assert self.unacknowledged(dsn) == self._filled, "not every task is in Redis"
        return self._filled

    def worker(self, dsn: str, tasks: int) -> Command:  # noqa: ARG002  # it runs until it is stopped
        """Give its own command line, over the script as a module."""
        return self.command(self.worker_argv(), dsn)

    def unfinished(self, dsn: str) -> bool:
        """Tell whether any task is not acknowledged yet."""
        return self.unacknowledged(dsn) > 0

    def finished(self, dsn: str) -> int:
        """Count what is gone, for nothing else is left of it."""
        return self._filled - self.unacknowledged(dsn)

    @abstractmethod
    def worker_argv(self) -> list[str]:
        """Give the arguments of its worker."""

    @abstractmethod
    def unacknowledged(self, dsn: str) -> int:
        """Count what waits and what is out with a worker."""

    @property
    def module(self) -> str:
        """The name of the script as a module."""
        return f"{self.name}_script"

    def command(self, argv: list[str], dsn: str) -> Command:
        """Give a call of something that loads the script."""
        facts = {"BENCH_SOCKET": dsn, "BENCH_OPTIONS": json.dumps(self.options), "PYTHONPATH": str(SCRIPTS)}
        return Command(argv, facts)

    @property
    def _script(self) -> Path:
        return SCRIPTS / f"{self.module}.py"


def ask(path: str, *command: str) -> int | str:
    """Ask a Redis for a number or a status; this is all we need of a client."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(path)
        parts = [f"${len(part.encode())}\r\n{part}\r\n" for part in command]
        connection.sendall("".join([f"*{len(command)}\r\n", *parts]).encode())
        with connection.makefile("r", encoding="utf-8", newline="\r\n") as lines:
            line = lines.readline().strip()
    if line.startswith("-") or not line:
        raise Unavailable(f"Redis says: {line[1:] or 'nothing'}")
    return int(line[1:]) if line.startswith(":") else line[1:]


def _program() -> str:
    found = shutil.which("redis-server")
    if found is None:
        raise Unavailable("it needs redis-server, which is not on the PATH")
    return found


def _wait_for(path: Path, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            ask(str(path), "PING")
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise Unavailable("redis-server does not start")
