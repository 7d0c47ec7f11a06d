"""Ten workers on one queue against two and one: what they do together.

All of them are up and idle before the queue, which is full and paused, is resumed. Each claim
of a worker passes over what the others have claimed, and skips what they are claiming.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from bench import fleet, machine, worker
from bench.cpu import BackendSampler, is_supported
from bench.database import Bench
from bench.report import Budget, Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals

COUNTS = {1: "one", 2: "two", 10: "ten"}
# Workers that have just come up look once more before they sleep.
SETTLE_S = 1.0
DRAIN_S = 600.0
QUEUE = "default"
KEYS = (
    Key("ten_to_two", "tasks per second of ten workers against two, round by round", 2, Budget(least=1.0)),
    Key("ten_to_one", "of ten workers against one", 2),
    *(
        key
        for count, name in COUNTS.items()
        for key in (
            Key(f"rate_{name}", f"tasks per second with {count} worker{'s' * (count > 1)}"),
            Key(f"worker_cpu_us_per_task_{name}", "CPU of the worker processes, their start left out", 1),
            Key(f"backend_cpu_us_per_task_{name}", "CPU of their server processes, likewise", 1),
            Key(f"claim_cpu_us_per_task_{name}", "of these, of those that claim", 1),
            Key(f"commits_per_task_{name}", "transactions of all their connections", 4),
            Key(f"tasks_per_claim_{name}", "tasks of a claim that found some", 0),
        )
    ),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)


class Together(NamedTuple):
    """What some workers did together: by the name of the figure, without how many they were."""

    rate: float
    worker_cpu_us_per_task: float | None
    backend_cpu_us_per_task: float | None
    claim_cpu_us_per_task: float | None
    commits_per_task: float
    tasks_per_claim: float


def command() -> list[str]:
    """Give the command line of each worker."""
    return fleet.worker("bench.app:app", concurrency=worker.CONCURRENCY)


def measure(bench: Bench, plan: Plan) -> Outcome:
    """Run all rounds: one, two and ten workers, in an order that turns around each time."""
    outcome = Outcome()
    for number in range(1, plan.rounds + 1):
        counts = sorted(COUNTS, reverse=number % 2 == 0)
        fsync_ms = machine.fsync_ms(bench.server.directory)
        runs = {COUNTS[count]: together(bench, plan.tasks, count) for count in counts}
        figures: Figures = {
            "ten_to_two": runs["ten"].rate / runs["two"].rate,
            "ten_to_one": runs["ten"].rate / runs["one"].rate,
            **{f"{key}_{name}": value for name, done in runs.items() for key, value in done._asdict().items()},
            "fsync_ms": fsync_ms,
        }
        progress(
            f"contention {number}/{plan.rounds}: "
            + ", ".join(f"{COUNTS[count]} {runs[COUNTS[count]].rate:,.0f}" for count in sorted(COUNTS))
            + f" tasks/s, ten to two {figures['ten_to_two']:.2f}"
        )
        outcome.rounds.append(figures)
    return outcome


def together(bench: Bench, tasks: int, count: int) -> Together:
    """Let so many workers drain a full queue."""
    bench.fill(tasks)
    bench.value("SELECT pgtasks.pause(%s)", QUEUE)
    with (
        fleet.Fleet(bench, *[command()] * count) as workers,
        BackendSampler(bench.admin_dsn, bench.name) as sampler,
    ):
        workers.ready(count)
        time.sleep(SETTLE_S)
        # Those who claim nothing yet have an idle session each; its commits count from here on.
        commits, leases = bench.counters().commits, _leases(bench)
        used_s = [_used(workers, sampler)]
        bench.value("SELECT pgtasks.resume(%s)", QUEUE)
        workers.until(bench.emptiness(), DRAIN_S, "all is done")
        used_s.append(_used(workers, sampler))
        workers.stop()
    worker_us, backend_us, claim_us = (
        None if a is None or b is None else (b - a) / tasks * 1e6 for a, b in zip(*used_s, strict=True)
    )
    return Together(
        rate=tasks / bench.span(tasks).seconds,
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


SCENARIO = Scenario(
    name="contention",
    summary=(__doc__ or "").partition("\n")[0],
    keys=no_rivals(*KEYS),
    plan=Plan(tasks=1_000_000, rounds=3),
    measure=measure,
    worker_command=command(),
)
