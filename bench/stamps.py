"""Moments at which handlers started, noted by their process in a file and read here afterwards.

Not in the database, which would cost the measured worker a statement, and not at the end, when a
process that is told to stop may have no time. A record of 16 bytes costs about two microseconds.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

# The environment variable that tells a worker's app which file it is.
FILE = "BENCH_STAMPS"
_RECORD = struct.Struct("<qd")


def writer(path: str) -> Callable[[int], None]:
    """Give a function that notes the time (seconds since 1970) for a task's number; callable from any thread."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(number: int) -> None:
        os.write(descriptor, _RECORD.pack(number, time.time()))

    return note


class Stamps:
    """A file that a process writes stamps to; a context manager, which removes it."""

    def __init__(self) -> None:
        descriptor, name = tempfile.mkstemp(prefix="pgtasks-stamps-")
        os.close(descriptor)
        self.path = Path(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)

    def count(self) -> int:
        """Say how many handlers have started so far."""
        return self.path.stat().st_size // _RECORD.size

    def read(self) -> dict[int, float]:
        """Give the moments by number; raises AssertionError when a task ran twice."""
        records = list(_RECORD.iter_unpack(self.path.read_bytes()))
        stamps: dict[int, float] = dict(records)
        assert len(stamps) == len(records), f"{len(records) - len(stamps)} tasks ran twice: the run is not valid"
        return stamps
