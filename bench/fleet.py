"""Worker processes that run side by side and stay until they are told to stop, and what they used."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from bench.cpu import cpu_s_of_process
from bench.database import Bench

ROOT = Path(__file__).resolve().parents[1]
READY_S = 60.0
STOP_S = 60.0
POLL_S = 0.01
_TAIL = 20
_MIB = 1024 * 1024
# Linux counts the peak of memory in KiB, macOS in bytes.
_PEAK_UNIT = 1024 if sys.platform == "linux" else 1
_PROC = Path("/proc")


class Usage(NamedTuple):
    """What processes used from their start to their end: CPU seconds, and the most memory of any."""

    cpu_s: float
    peak_mib: float


def worker(app: str, *options: str, concurrency: int, log_level: str = "warning") -> list[str]:
    """Give the command line of a worker, as a person would type it."""
    return ["pgtasks", "worker", app, "--concurrency", str(concurrency), *options, "--log-level", log_level]


def free_port() -> int:
    """Give a port of this machine that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def module(name: str, *arguments: str) -> list[str]:
    """Give the command line of one of our own programs, which finds the database as a worker does."""
    return ["python", "-m", name, *arguments]


class Fleet:
    """A context manager: starts processes, and ends those that are left.

    What they say goes into a file, as a busy worker's log does, and is shown when one fails.
    `env` is added to their environment.
    """

    def __init__(self, bench: Bench, *commands: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._bench, self._commands, self._env = bench, commands, dict(env or {})
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the fleet

    def __enter__(self) -> Self:
        for command in self._commands:
            program, *arguments = command
            argv = [str(Path(sys.executable).with_name(program)), *arguments]
            kept = {name: value for name, value in os.environ.items() if not name.startswith("PGTASKS_")}
            self._processes.append(
                subprocess.Popen(
                    argv,
                    cwd=ROOT,
                    env={**kept, "PGTASKS_DSN": self._bench.dsn, **self._env},
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=subprocess.STDOUT,
                )
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
                process.wait()
        self._log.close()

    @property
    def pids(self) -> list[int]:
        """The processes, in the order of their commands."""
        return [process.pid for process in self._processes]

    def ready(self, count: int) -> None:
        """Wait until so many workers are up."""
        self.until(
            lambda: self._bench.value("SELECT count(*) FROM pgtasks.workers") >= count, READY_S, "workers are up"
        )

    def until(self, is_done: Callable[[], bool], limit_s: float, what: str) -> None:
        """Wait until something is so while the processes live; raises AssertionError when one dies, or after a time."""
        deadline = time.monotonic() + limit_s
        while not is_done():
            assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}; {self._said()}"
            for process in self._processes:
                assert process.returncode is not None or not _is_over(process), f"a process ended early; {self._said()}"
            time.sleep(POLL_S)

    def sleep(self, seconds: float) -> None:
        """Let them work for a time; raises AssertionError when one dies."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, seconds + 1.0, "time goes by")

    def cpu_s(self) -> float | None:
        """Give the CPU seconds of the living processes so far, all their threads together; None off Linux."""
        found = [cpu_s_of_process(pid) for pid in self.pids]
        return None if None in found else sum(used for used in found if used is not None)

    def stop(self, limit_s: float = STOP_S) -> Usage:
        """End all of them as a supervisor does, and wait; gives what they used."""
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        return self.wait(limit_s)

    def wait(self, limit_s: float = 3600.0) -> Usage:
        """Wait until all have ended by themselves, well; gives what they used."""
        cpu_s = peak_mib = 0.0
        for process in self._processes:
            usage = reap(process, limit_s)
            assert process.returncode == 0, f"a process exited with {process.returncode}; {self._said()}"
            cpu_s += usage.ru_utime + usage.ru_stime
            peak_mib = max(peak_mib, usage.ru_maxrss * _PEAK_UNIT / _MIB)
        return Usage(cpu_s, peak_mib)

    def _said(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()[-_TAIL:]
        return "\n".join(["its log ends with:", *lines]) if lines else "it said nothing"


def memory_mib(pid: int) -> float | None:
    """Give the memory of a process that is resident now; None where that cannot be read."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


def _is_over(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether a process has ended, and leave it to be reaped with its usage."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap(process: subprocess.Popen[bytes], limit_s: float) -> os._ResourceUsage:  # type: ignore[name-defined]  # only stubs lack it
    """Wait until a process has ended; gives what it used, or raises AssertionError after a time."""
    deadline = time.monotonic() + limit_s
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage
        assert time.monotonic() < deadline, f"a process had not ended after {limit_s:g} s"
        time.sleep(POLL_S)
