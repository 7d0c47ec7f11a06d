"""Worker processes with everything on empty a full queue, beside the bare SQL loop and the rivals."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench import floor, machine, worker
from bench.database import Bench
from bench.report import Budget, Figures, Key, progress
from bench.rivals import beside
from bench.scenario import Outcome, Plan, Scenario

KEYS = (
    Key("rate", "tasks per second, first claim to last completion"),
    Key("sql_loop_rate", "the same for the bare SQL loop"),
    Key("ratio_to_sql_loop", "worker against loop, round by round", 2, Budget(least=0.7)),
    Key("rate_at_best", f"tasks per second with `--concurrency {worker.CONCURRENCY_BEST}`, our best setting"),
    Key("rate_two_processes", "tasks per second with `--processes 2`"),
    Key("worker_cpu_us_per_task", "user and system time of the worker process, its start included", 1, Budget(most=35)),
    Key("backend_cpu_us_per_task", "the same of its connections' server processes", 1),
    Key("sql_loop_cpu_us_per_task", "CPU of the loop and of its server process together", 1),
    Key("claim_hot_ratio", "claims that touched no index", 3, Budget(least=0.95)),
    Key("wal_bytes_per_task", "from claim to history", 0, Budget(most=800)),
    Key("commits_per_task", "transactions of all its connections", 4, Budget(most=0.02)),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
    Key("worker_peak_mib", "most memory of the worker process", 1),
)
# Of design.md, section 12: each rival at its best settings, sustained from a backlog of a million.
BUDGETS = {"pgqueuer": Budget(least=2.5), "graphile": Budget(least=1.3)}


def keys(rivals: Sequence[str]) -> Sequence[Key]:
    """Give the figures, those of the rivals at the end."""
    at_500 = [
        Key(
            f"ratio_at_{worker.CONCURRENCY}_to.{name}", f"our rate with `--concurrency {worker.CONCURRENCY}` instead", 2
        )
        for name in rivals
    ]
    return (*KEYS, *beside.keys(rivals, BUDGETS), *at_500)


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds: loop, worker, loop, the worker at its best, two of them, then each rival at its best."""
    field = beside.Field(bench, plan.rivals, outcome.missing)
    for number in range(1, plan.rounds + 1):
        figures = _round(bench, plan.tasks)
        progress(
            f"drain {number}/{plan.rounds}: {figures['rate']:,.0f} tasks/s, SQL loop {figures['sql_loop_rate']:,.0f}, "
            f"ratio {figures['ratio_to_sql_loop']:.2f}, fsync {figures['fsync_ms']:.2f} ms"
        )
        theirs = field.round(plan.tasks, plan.seconds)
        ratios = beside.ratios(theirs, figures["rate_at_best"])
        at_500 = beside.ratios(theirs, figures["rate"], f"ratio_at_{worker.CONCURRENCY}_to")
        outcome.rounds.append({**figures, **theirs, **ratios, **at_500})


def _round(bench: Bench, tasks: int) -> Figures:
    """Measure the loop, the worker, the loop again, and the worker in other shapes within seconds.

    The loop on both sides of the worker takes out what a machine that gets slower or faster
    meanwhile would add to the one and not to the other.
    """
    fsyncs_ms = [machine.fsync_ms(bench.server.directory)]
    before = _loop(bench, tasks)
    fsyncs_ms.append(machine.fsync_ms(bench.server.directory))
    bench.fill(tasks)
    run = worker.run(bench, tasks)
    fsyncs_ms.append(machine.fsync_ms(bench.server.directory))
    after = _loop(bench, tasks)
    bench.fill(tasks)
    best = worker.run(bench, tasks, concurrency=worker.CONCURRENCY_BEST)
    bench.fill(tasks)
    two = worker.run(bench, tasks, processes=2)
    loop_rate = statistics.harmonic_mean([before.rate, after.rate])
    loops_us = [one.cpu_us_per_task for one in (before, after) if one.cpu_us_per_task is not None]
    return {
        "rate": run.rate,
        "sql_loop_rate": loop_rate,
        "ratio_to_sql_loop": run.rate / loop_rate,
        "rate_at_best": best.rate,
        "rate_two_processes": two.rate,
        "worker_cpu_us_per_task": run.per_task_us(run.cpu_s),
        "backend_cpu_us_per_task": run.per_task_us(run.backend_cpu_s),
        "sql_loop_cpu_us_per_task": statistics.fmean(loops_us) if loops_us else None,
        "claim_cpu_us_per_task": run.per_task_us(run.claim_cpu_s),
        "claim_hot_ratio": run.hot_updates / run.updates,
        "wal_bytes_per_task": run.wal_bytes / tasks,
        "full_page_images": run.full_page_images,
        "commits_per_task": run.commits / tasks,
        "fsync_ms": statistics.median(fsyncs_ms),
        "worker_peak_mib": run.peak_mib,
    }


def _loop(bench: Bench, tasks: int) -> floor.FloorRun:
    bench.fill(tasks)
    return floor.run(bench, tasks)


SCENARIO = Scenario(
    name="drain",
    summary=(__doc__ or "").strip(),
    keys=keys,
    plan=Plan(tasks=1_000_000, rounds=3, seconds=30),
    measure=measure,
    has_rivals=True,
    worker_command=worker.command(),
)
