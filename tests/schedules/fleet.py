"""Worker and scheduler processes that are killed and started again while schedules fire."""

import os
import random
import time
import types
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.workers import WorkerProcess, program

APP = "tests.apps.basic:app"
Start = Callable[[], WorkerProcess]


class Fleet:
    """So many processes, each started anew when it is killed; a context manager that kills all."""

    def __init__(self, starts: list[Start], seed: int) -> None:
        self._starts, self._rng, self._stack = starts, random.Random(seed), ExitStack()
        self.processes: list[WorkerProcess] = []
        self.kills = 0

    def __enter__(self) -> Self:
        self.processes = [self._stack.enter_context(start()) for start in self._starts]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def kill_one(self) -> None:
        """Kill a random one, and start another in its place."""
        index = self._rng.randrange(len(self.processes))
        self.processes[index].kill()
        self.processes[index] = self._stack.enter_context(self._starts[index]())
        self.kills += 1

    def kill_for(self, seconds: float, every_s: float) -> None:
        """Kill random ones at random moments for some time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(every_s * (0.5 + self._rng.random()))  # how long they live is the experiment
            self.kill_one()

    def outputs(self) -> str:
        """Give what the living ones printed."""
        return "\n".join(process.output() for process in self.processes)


class SchedulerProcess(WorkerProcess):
    """One `pgtasks scheduler` process."""

    @staticmethod
    def command(app: str, *flags: str) -> list[str]:
        """Give the command line, which names no app."""
        assert not app
        return [program(), "scheduler", *flags]


def scheduler(dsn: str) -> Start:
    """Give what starts a scheduler."""
    return lambda: SchedulerProcess("", dsn)


def cpu_s(pid: int) -> float:
    """Give the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def worker(dsn: str, *flags: str, env: dict[str, str] | None = None) -> Start:
    """Give what starts a small worker."""
    return lambda: WorkerProcess(APP, dsn, "--concurrency=2", *flags, env=env)
