"""Traces: a file to which handlers of any process append what they do, on one monotonic clock."""

import json
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

from pgtasks import Context


class Mark(NamedTuple):
    """One thing that a handler did; ``at`` is CLOCK_MONOTONIC, which all processes share, ``pid`` the worker's."""

    event: str
    task_id: int
    attempt: int
    lease_id: int
    pid: int
    at: float


def worker_pid() -> int:
    """Give the process id of the worker whose handler calls this, from its own process or from a child's."""
    spec = sys.modules["__main__"].__spec__
    return os.getppid() if spec is not None and spec.name == "pgtasks.cli.child" else os.getpid()


class Trace:
    """One such file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def mark(self, event: str, context: Context) -> None:
        """Append a mark, in one write, which keeps lines of several processes whole."""
        mark = Mark(event, context.task_id, context.attempt, context.lease_id, worker_pid(), time.monotonic())
        os.write(self._file, (json.dumps(mark) + "\n").encode())

    def marks(self, event: str = "", *, task_id: int | None = None, pid: int | None = None) -> list[Mark]:
        """Return the marks so far, oldest first: of one event, one task, one process if asked."""
        read = [Mark(*json.loads(line)) for line in self.path.read_text().splitlines()]
        return [
            mark
            for mark in sorted(read, key=lambda mark: mark.at)
            if event in {"", mark.event} and task_id in {None, mark.task_id} and pid in {None, mark.pid}
        ]
