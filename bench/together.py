"""Workers that are up and idle before a full queue is opened to them: what they use for each of its tasks.

What a process needs to start, which is worth tens of thousands of tasks, is left out that way.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench import fleet
from bench.cpu import BackendSampler, is_supported
from bench.database import Bench
from pgtasks.settings import QUEUE_DEFAULT

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


@dataclass(frozen=True)
class Asking(Bench):
    """The same database, with a count of what the harness asks in it: each question is a transaction of its own."""

    asked: Counter[str] = field(default_factory=Counter)

    def value(self, statement: str, *params: Any) -> Any:
        """Run a statement and give the one value of its one row."""
        self.asked[statement] += 1
        # Not prepared by the fifth time, which would be a transaction more.
        row = self.connection.execute(statement.encode(), params or None, prepare=False).fetchone()
        assert row is not None
        return row[0]

    def commits_of_others(self) -> int:
        """Count the commits so far but for our own since this was made; those of a session are complete at its end."""
        # Otherwise the server would know only later what this session did.
        self.value("SELECT pg_stat_force_next_flush()")
        ours = self.asked.total()
        commits: int = self.value("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
        return commits - ours


def drained(
    bench: Bench, commands: Sequence[Sequence[str]], tasks: int, queues: Sequence[str] = (QUEUE_DEFAULT,)
) -> Together:
    """Let these workers, which must not be told to drain, empty queues that were filled; nothing may be left."""
    for queue in queues:
        bench.value("SELECT pgtasks.pause(%s)", queue)
    with (
        fleet.Fleet(bench, *commands) as workers,
        BackendSampler(bench.admin_dsn, bench.name) as sampler,
    ):
        workers.ready(len(commands))
        time.sleep(SETTLE_S)
        # The polls below are a hundred a second, and nobody's cost.
        asking = Asking(bench.server, bench.connection)
        commits, leases = asking.commits_of_others(), _leases(asking)
        before = _used(workers, sampler)
        is_empty = asking.emptiness()
        began = time.monotonic()
        for queue in queues:
            asking.value("SELECT pgtasks.resume(%s)", queue)
        workers.until(is_empty, DRAIN_S, "nothing is left")
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
        commits_per_task=(asking.commits_of_others() - commits) / tasks,
        tasks_per_claim=tasks / (_leases(asking) - leases),
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
