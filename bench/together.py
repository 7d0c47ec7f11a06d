"""Workers that are up and idle before a full queue is opened to them: what they use for each of its tasks.

What a process needs to start, which is worth tens of thousands of tasks, is left out that way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from bench import fleet
from bench.cpu import BackendSampler, is_supported
from bench.database import Bench

QUEUE = "default"
# Workers that have just come up look once more before they sleep.
SETTLE_S = 1.0
DRAIN_S = 600.0


class Together(NamedTuple):
    """What workers did and used from the opening of the queue to its end, by task; CPU in microseconds."""

    rate: float
    worker_cpu_us_per_task: float | None
    backend_cpu_us_per_task: float | None
    claim_cpu_us_per_task: float | None
    commits_per_task: float
    tasks_per_claim: float


def drained(bench: Bench, commands: Sequence[Sequence[str]], tasks: int) -> Together:
    """Let these workers, which must not be told to drain, empty a queue that was filled; nothing may be left."""
    bench.value("SELECT pgtasks.pause(%s)", QUEUE)
    with (
        fleet.Fleet(bench, *commands) as workers,
        BackendSampler(bench.admin_dsn, bench.name) as sampler,
    ):
        workers.ready(len(commands))
        time.sleep(SETTLE_S)
        commits, leases = bench.counters().commits, _leases(bench)
        before = _used(workers, sampler)
        is_empty = bench.emptiness()
        began = time.monotonic()
        bench.value("SELECT pgtasks.resume(%s)", QUEUE)
        workers.until(is_empty, DRAIN_S, "the queue is empty")
        seconds = time.monotonic() - began
        after = _used(workers, sampler)
        workers.stop()
    worker_us, backend_us, claim_us = (
        None if a is None or b is None else (b - a) / tasks * 1e6 for a, b in zip(before, after, strict=True)
    )
    return Together(
        rate=tasks / seconds,
        worker_cpu_us_per_task=worker_us,
        backend_cpu_us_per_task=backend_us,
        claim_cpu_us_per_task=claim_us,
        commits_per_task=(bench.counters().commits - commits) / tasks,
        tasks_per_claim=tasks / (_leases(bench) - leases),
    )


def _used(workers: fleet.Fleet, sampler: BackendSampler) -> list[float | None]:
    """Give the CPU seconds so far: of the workers, of their server processes, of those that claim."""
    if not is_supported():
        return [None, None, None]
    return [workers.cpu_s(), sampler.cpu_s(), sampler.cpu_s("claim")]


def _leases(bench: Bench) -> int:
    """Say how many leases there have been: one for each claim that found something."""
    found: int = bench.value("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM pgtasks.leases_id_seq")
    return found
