"""CPU time of server processes, as Linux counts it.

`/proc/PID/schedstat` counts nanoseconds on a CPU; where the kernel lacks it, `/proc/PID/stat`
counts ticks of some 10 ms, which is still fine enough for the seconds that a run takes. On other
systems there is no such figure without privileges, and the result says that it is missing.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg

SAMPLE_S = 0.02
LOOK_S = 0.5
# Connections of this name are the harness's own and nobody's cost; `_ALL` leaves them out.
OURS = "bench"
# claim, finish, heartbeat, listen: a worker has no more than these.
PARTS_MAX = 4
# Of others we do not know it: look for new ones every LOOK_S only, which costs less.
ANY_PARTS = 1
_PROC = Path("/proc")
_NS = 1e9
_OUR_WORKERS = (
    "SELECT pid, split_part(application_name, '/', 2) FROM pg_stat_activity"
    " WHERE datname = %s AND application_name LIKE 'pgtasks/%%'"
)
_ALL = (
    "SELECT pid, application_name FROM pg_stat_activity WHERE datname = %s"
    " AND backend_type IN ('client backend', 'parallel worker') AND application_name <> 'bench'"
)


class Sample(NamedTuple):
    """How much CPU time a process had used at a moment (seconds since 1970)."""

    at_s: float
    cpu_s: float


def is_supported() -> bool:
    """Tell whether this system says how much CPU time another process used."""
    return cpu_s_of(os.getpid()) is not None


def cpu_s_of(pid: int) -> float | None:
    """Give the CPU seconds of a process without threads so far; None when it is gone, or not to be had."""
    try:
        return int((_PROC / str(pid) / "schedstat").read_text().split()[0]) / _NS
    except (OSError, ValueError, IndexError):
        pass
    return cpu_s_of_process(pid)


def cpu_s_of_process(pid: int) -> float | None:
    """Give the CPU seconds of a process with all its threads so far, in ticks of some 10 ms."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


@dataclass
class Backend:
    """One server process of the measured worker, and its CPU time over time."""

    part: str
    samples: list[Sample] = field(default_factory=list)


class BackendSampler:
    """Watches the server processes of all `pgtasks/…` connections to a database, in a thread.

    With `all_of_them` it watches every client's, but the harness's own. A context manager. The last
    sample of a process is at most SAMPLE_S older than its end.
    """

    def __init__(self, admin_dsn: str, database: str, *, all_of_them: bool = False) -> None:
        self._admin_dsn, self._database = admin_dsn, database
        self._statement = _ALL if all_of_them else _OUR_WORKERS
        self._parts_max = ANY_PARTS if all_of_them else PARTS_MAX
        self._backends: dict[int, Backend] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_s(self, part: str | None = None) -> float:
        """Give the CPU seconds of one part's processes, or of all."""
        return sum(
            backend.samples[-1].cpu_s
            for backend in self._backends.values()
            if backend.samples and part in {None, backend.part}
        )

    def samples(self, part: str) -> list[Sample]:
        """Give the course of one part's process, of which there is one at most; nothing of one that was too brief."""
        backends = [backend for backend in self._backends.values() if backend.part == part]
        assert len(backends) <= 1, f"{len(backends)} server processes for {part}: the run is not valid"
        return backends[0].samples if backends else []

    def used_s(self, part: str, start_s: float, end_s: float) -> float | None:
        """Give the CPU seconds of one part's process between two moments; None where it was not seen."""
        samples = self.samples(part)
        return between(samples, start_s, end_s) if samples else None

    def _watch(self) -> None:
        with psycopg.connect(self._admin_dsn, autocommit=True) as connection:
            look_at = 0.0
            while not self._stop.wait(SAMPLE_S):
                if len(self._backends) < self._parts_max or time.monotonic() >= look_at:
                    self._look(connection)
                    look_at = time.monotonic() + LOOK_S
                for pid, backend in self._backends.items():
                    cpu_s = cpu_s_of(pid)
                    if cpu_s is not None:
                        backend.samples.append(Sample(time.time(), cpu_s))

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        found = connection.execute(self._statement, (self._database,))
        for pid, part in found:
            self._backends.setdefault(pid, Backend(part))


def between(samples: list[Sample], start_s: float, end_s: float) -> float:
    """Give the CPU seconds used between two moments, interpolated between samples, of which there are some."""
    return _at(samples, end_s) - _at(samples, start_s)


def _at(samples: list[Sample], moment_s: float) -> float:
    before = samples[0]
    for sample in samples:
        if sample.at_s >= moment_s:
            span_s = sample.at_s - before.at_s
            share = (moment_s - before.at_s) / span_s if span_s > 0 else 1.0
            return before.cpu_s + max(0.0, share) * (sample.cpu_s - before.cpu_s)
        before = sample
    return before.cpu_s
