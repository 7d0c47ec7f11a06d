"""Drain: one worker process with everything on empties a full queue, beside the bare SQL loop."""

from __future__ import annotations

import statistics
from typing import Any

from bench import floor, machine, worker
from bench.database import Bench
from bench.report import Budget, Figures, Key, progress, result

TASKS, ROUNDS = 200_000, 5
KEYS = (
    Key("rate", "tasks per second, first claim to last completion"),
    Key("sql_loop_rate", "the same for the bare SQL loop"),
    Key("ratio_to_sql_loop", "worker against loop, round by round", 2, Budget(least=0.7)),
    Key("worker_cpu_us_per_task", "user and system time of the worker process, its start included", 1, Budget(most=35)),
    Key("backend_cpu_us_per_task", "the same of its connections' server processes", 1),
    Key("sql_loop_cpu_us_per_task", "CPU of the loop and of its server process together", 1),
    Key("claim_hot_ratio", "claims that touched no index", 3, Budget(least=0.95)),
    Key("wal_bytes_per_task", "from claim to history", 0, Budget(most=800)),
    Key("commits_per_task", "transactions of all its connections", 4, Budget(most=0.02)),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
    Key("worker_peak_mib", "most memory of the worker process", 1),
)


def measure(bench: Bench, *, tasks: int, rounds: int) -> dict[str, Any]:
    """Run all rounds and give the result."""
    facts = {"tasks": tasks, "machine": machine.facts()}
    done: list[Figures] = []
    for number in range(1, rounds + 1):
        done.append(_round(bench, tasks))
        figures = done[-1]
        progress(
            f"drain {number}/{rounds}: {figures['rate']:,.0f} tasks/s, SQL loop {figures['sql_loop_rate']:,.0f}, "
            f"ratio {figures['ratio_to_sql_loop']:.2f}, fsync {figures['fsync_ms']:.2f} ms"
        )
    return result(bench, "drain", KEYS, done, facts)


def _round(bench: Bench, tasks: int) -> Figures:
    """Measure the loop, the worker and the loop again within seconds.

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
    loop_rate = statistics.harmonic_mean([before.rate, after.rate])
    loops_us = [one.cpu_us_per_task for one in (before, after) if one.cpu_us_per_task is not None]
    return {
        "rate": run.rate,
        "sql_loop_rate": loop_rate,
        "ratio_to_sql_loop": run.rate / loop_rate,
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
