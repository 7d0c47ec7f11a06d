"""One run of a real worker process over a full queue, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

from bench.cpu import BackendSampler, Sample, is_supported
from bench.database import Bench
from bench.fleet import Fleet

CONCURRENCY = 500
# From where on more makes no difference: a claim's batch no longer waits for the last one's handlers.
CONCURRENCY_BEST = 4000
# What a worker may take to empty the queue; one that takes longer hangs.
DRAIN_S = 3600.0


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
    with (
        BackendSampler(bench.admin_dsn, bench.name) as sampler,
        Fleet(bench, command(concurrency, processes)) as fleet,
    ):
        usage = fleet.wait(DRAIN_S)
    used = bench.counters().since(before)
    span = bench.span(tasks)
    measured = is_supported()
    return WorkerRun(
        tasks=tasks,
        seconds=span.seconds,
        cpu_s=usage.cpu_s,
        peak_mib=usage.peak_mib,
        backend_cpu_s=sampler.cpu_s() if measured else None,
        claim_cpu_s=sampler.cpu_s("claim") if measured else None,
        claim_samples=sampler.samples("claim") if measured and processes == 1 else [],
        **used._asdict(),
    )
