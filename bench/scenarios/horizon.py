"""What a claim costs while a long transaction elsewhere keeps vacuum from cleaning up.

A transaction in REPEATABLE READ that is older than everything holds back the horizon up to which
dead rows can be removed. All claimed and finished rows stay in the table and in its index then,
and a queue that looks for work from the head walks over all of them, every time.
"""

from __future__ import annotations

from itertools import pairwise

from bench import cpu, machine, worker
from bench.database import Bench
from bench.report import Budget, Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals
from bench.snapshot import held
from bench.worker import WorkerRun

TENTHS = 10
KEYS = (
    Key("claim_us_first_tenth", "CPU of the claiming server process per task, first tenth", 2),
    Key("claim_us_last_tenth", "the same in the last tenth", 2),
    Key("last_to_first", "the one against the other, round by round", 2, Budget(most=1.5)),
    Key("rate", "tasks per second with the transaction held open"),
    Key("rate_without_held_transaction", "the same without one"),
    Key("held_to_free", "the one against the other, round by round", 2, Budget(least=0.9)),
    Key("dead_rows_left", "rows of tasks that vacuum could not remove"),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds, with and without the transaction in turns."""
    by_tenth = []
    for number in range(1, plan.rounds + 1):
        figures, tenths = _round(bench, plan.tasks, held_first=number % 2 == 1)
        outcome.rounds.append(figures)
        by_tenth.append([round(value, 2) for value in tenths])
        ratio = figures["last_to_first"]
        progress(
            f"horizon {number}/{plan.rounds}: {figures['rate']:,.0f} tasks/s held, "
            f"{figures['rate_without_held_transaction']:,.0f} without, "
            f"claims last to first {'-' if ratio is None else format(ratio, '.2f')}"
        )
    outcome.facts["claim_us_by_tenth"] = by_tenth


def _round(bench: Bench, tasks: int, *, held_first: bool) -> tuple[Figures, list[float]]:
    free_rate = 0.0
    if not held_first:
        free_rate = _free(bench, tasks)
    bench.fill(tasks)
    with held(bench.dsn):
        run = worker.run(bench, tasks)
        dead = _dead_rows(bench)
        tenths = _claim_us_by_tenth(bench, run)
    fsync_ms = machine.fsync_ms(bench.server.directory)
    if held_first:
        free_rate = _free(bench, tasks)
    first, last = (tenths[0], tenths[-1]) if tenths else (None, None)
    figures: Figures = {
        "claim_us_first_tenth": first,
        "claim_us_last_tenth": last,
        "last_to_first": last / first if first and last else None,
        "rate": run.rate,
        "rate_without_held_transaction": free_rate,
        "held_to_free": run.rate / free_rate,
        "dead_rows_left": dead,
        "fsync_ms": fsync_ms,
        "worker_cpu_us_per_task": run.per_task_us(run.cpu_s),
        "backend_cpu_us_per_task": run.per_task_us(run.backend_cpu_s),
        "worker_peak_mib": run.peak_mib,
    }
    return figures, tenths


def _free(bench: Bench, tasks: int) -> float:
    bench.fill(tasks)
    return worker.run(bench, tasks).rate


def _dead_rows(bench: Bench) -> float:
    """Count the rows in the table that nobody sees any more, by PostgreSQL's own statistics."""
    row = bench.connection.execute(
        "SELECT n_dead_tup FROM pg_stat_all_tables WHERE relid = 'pgtasks.tasks'::regclass"
    ).fetchone()
    assert row is not None
    return float(row[0])


def _claim_us_by_tenth(bench: Bench, run: WorkerRun) -> list[float]:
    """Give the claiming server process's CPU per task for each tenth of the tasks, in claim order."""
    if not run.claim_samples:
        return []
    shares = [number / TENTHS for number in range(TENTHS + 1)]
    row = bench.connection.execute(
        "SELECT percentile_disc(%s::double precision[]) WITHIN GROUP"
        " (ORDER BY extract(EPOCH FROM started_at)::double precision) FROM pgtasks.history",
        (shares,),
    ).fetchone()
    assert row is not None
    per_tenth = run.tasks / TENTHS
    return [cpu.between(run.claim_samples, start, end) / per_tenth * 1e6 for start, end in pairwise(row[0])]


SCENARIO = Scenario(
    name="horizon",
    summary=(__doc__ or "").partition("\n")[0],
    keys=no_rivals(*KEYS),
    plan=Plan(tasks=1_000_000, rounds=3),
    measure=measure,
    worker_command=worker.command(),
)
