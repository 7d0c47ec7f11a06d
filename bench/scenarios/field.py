"""Every rival in one sitting, each over a full backlog for half a minute, with us before and after.

What `drain` repeats three times with the fastest, this does once with all of them: which of them are near is
seen in one round, and a round takes a quarter of an hour. In so long a time a machine changes its speed, so our
figures are taken from both ends of the round.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from bench import machine, worker
from bench.database import Bench
from bench.report import Figures, Key, progress
from bench.rivals import RIVALS, beside
from bench.scenario import Outcome, Plan, Scenario
from bench.worker import WorkerRun

KEYS = (
    Key("rate", f"tasks per second with `--concurrency {worker.CONCURRENCY}`"),
    Key("rate_at_best", f"the same with `--concurrency {worker.CONCURRENCY_BEST}`, our best setting"),
    Key("end_to_begin", "that rate after the rivals against the one before them", 2),
    Key("worker_cpu_us_per_task", "user and system time of the worker process, its start included", 1),
    Key("backend_cpu_us_per_task", "the same of its connections' server processes", 1),
    Key("wal_bytes_per_task", "from claim to history"),
    Key("commits_per_task", "transactions of all its connections", 4),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)


def keys(rivals: Sequence[str]) -> Sequence[Key]:
    """Give the figures, those of the rivals at the end."""
    return (*KEYS, *beside.keys(rivals, {}))


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds: ourselves, every rival, ourselves again."""
    field = beside.Field(bench, plan.rivals, outcome.missing)
    for number in range(1, plan.rounds + 1):
        fsync_ms = machine.fsync_ms(bench.server.directory)
        before = [_run(bench, plan.tasks, concurrency) for concurrency in (worker.CONCURRENCY, worker.CONCURRENCY_BEST)]
        theirs = field.round(plan.tasks, plan.seconds)
        after = [_run(bench, plan.tasks, concurrency) for concurrency in (worker.CONCURRENCY, worker.CONCURRENCY_BEST)]
        rate, best = (statistics.harmonic_mean([a.rate, b.rate]) for a, b in zip(before, after, strict=True))
        ours = [before[0], after[0]]
        figures: Figures = {
            "rate": rate,
            "rate_at_best": best,
            "end_to_begin": after[1].rate / before[1].rate,
            "worker_cpu_us_per_task": _mean(one.per_task_us(one.cpu_s) for one in ours),
            "backend_cpu_us_per_task": _mean(one.per_task_us(one.backend_cpu_s) for one in ours),
            "wal_bytes_per_task": _mean(one.wal_bytes / plan.tasks for one in ours),
            "commits_per_task": _mean(one.commits / plan.tasks for one in ours),
            "fsync_ms": fsync_ms,
        }
        progress(f"field {number}/{plan.rounds}: {rate:,.0f} tasks/s, at our best {best:,.0f}")
        outcome.rounds.append({**figures, **theirs, **beside.ratios(theirs, best)})


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _run(bench: Bench, tasks: int, concurrency: int) -> WorkerRun:
    bench.fill(tasks)
    return worker.run(bench, tasks, concurrency=concurrency)


SCENARIO = Scenario(
    name="field",
    summary=(__doc__ or "").partition("\n")[0],
    keys=keys,
    plan=Plan(tasks=1_000_000, rounds=1, seconds=30, rivals=tuple(RIVALS)),
    measure=measure,
    has_rivals=True,
    worker_command=worker.command(),
)
