"""One run of a real worker process over a full queue, and what it cost."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.cpu import BackendSampler, Sample, is_supported
from bench.database import Bench, Counters

ROOT = Path(__file__).resolve().parents[1]
CONCURRENCY = 500
# From where on more makes no difference: a claim's batch no longer waits for the last one's handlers.
CONCURRENCY_BEST = 4000
_MIB = 1024 * 1024
# Linux counts the peak of memory in KiB, macOS in bytes.
_PEAK_UNIT = 1024 if sys.platform == "linux" else 1


@dataclass(frozen=True)
class WorkerRun:
    """What one worker process did and used. CPU times of the server are None where they cannot be read."""

    tasks: int
    seconds: float
    cpu_s: float
    peak_mib: float
    backend_cpu_s: float | None
    claim_cpu_s: float | None
    claim_samples: list[Sample]
    commits: int
    updates: int
    hot_updates: int
    wal_bytes: int
    full_page_images: int

    @property
    def rate(self) -> float:
        """Tasks per second from the first claim to the last completion."""
        return self.tasks / self.seconds

    def per_task_us(self, cpu_s: float | None) -> float | None:
        """Give microseconds per task."""
        return None if cpu_s is None else cpu_s / self.tasks * 1e6


def command(concurrency: int = CONCURRENCY, processes: int = 1) -> list[str]:
    """Give the command line of the measured worker, as a person would type it."""
    return [
        "pgtasks",
        "worker",
        "bench.app:app",
        "--drain",
        "--concurrency",
        str(concurrency),
        *(["--processes", str(processes)] if processes > 1 else []),
        "--log-level",
        "warning",
    ]


def run(bench: Bench, tasks: int, *, concurrency: int = CONCURRENCY, processes: int = 1) -> WorkerRun:
    """Let one worker drain the queue, which holds this many tasks."""
    before = bench.counters()
    with BackendSampler(bench.admin_dsn, bench.name) as sampler:
        usage = _run_process(bench.dsn, command(concurrency, processes))
    used = _difference(before, bench.counters())
    span = bench.span(tasks)
    measured = is_supported()
    return WorkerRun(
        tasks=tasks,
        seconds=span.seconds,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mib=usage.ru_maxrss * _PEAK_UNIT / _MIB,
        backend_cpu_s=sampler.cpu_s() if measured else None,
        claim_cpu_s=sampler.cpu_s("claim") if measured else None,
        claim_samples=sampler.samples("claim") if measured and processes == 1 else [],
        **used._asdict(),
    )


def _run_process(dsn: str, command_line: list[str]) -> os._ResourceUsage:  # type: ignore[name-defined]  # only stubs lack it
    program, *arguments = command_line
    argv = [str(Path(sys.executable).with_name(program)), *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PGTASKS_")}
    process = subprocess.Popen(argv, cwd=ROOT, env={**kept, "PGTASKS_DSN": dsn}, stdin=subprocess.DEVNULL)
    try:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, f"the worker exited with {process.returncode}"
    return usage


def _difference(before: Counters, after: Counters) -> Counters:
    return Counters(*(new - old for old, new in zip(before, after, strict=True)))
