"""A hundred thousand delayed tasks that fall due at the same moment, beside the same when they are due already.

A worker that is idle sleeps until then. A start counts from its claim, by the database's clock;
lateness is the time from the moment the task is due.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from bench import fleet, machine, together, worker
from bench.cpu import BackendSampler
from bench.database import Bench
from bench.report import Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals

# Between their insert and their moment: time to insert them, at so many a second at least.
LEAD_S, INSERTS_PER_S = 4.0, 20_000
DONE_S = 300.0
KEYS = (
    Key("delayed_to_due", "tasks per second, the one against the other, round by round", 2),
    Key("rate_delayed", "tasks per second, from the moment they are due to the last completion"),
    Key("rate_due", "the same of tasks that are due already, from the moment their queue is opened"),
    Key("seconds_delayed", "from the moment they are due to the last completion", 2),
    Key("first_start_ms", "lateness of the first start", 1),
    Key("lateness_p50_ms", "median lateness of all starts"),
    Key("lateness_p99_ms", "the 99th percentile"),
    Key("claim_cpu_us_per_task_delayed", "CPU of the claiming server process", 2),
    Key("claim_cpu_us_per_task_due", "the same of tasks that are due already", 2),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)
_LATENESS = """
    SELECT
        count(*),
        min(late_s),
        percentile_disc(0.5) WITHIN GROUP (ORDER BY late_s),
        percentile_disc(0.99) WITHIN GROUP (ORDER BY late_s),
        max(done_s)
    FROM (
        SELECT
            extract(EPOCH FROM started_at - run_at)::double precision AS late_s,
            extract(EPOCH FROM finished_at - run_at)::double precision AS done_s
        FROM pgtasks.history WHERE status = 'completed'
    ) AS h
"""


class Wave(NamedTuple):
    """What became of tasks that were due at once: seconds from that moment."""

    seconds: float
    first_s: float
    p50_s: float
    p99_s: float
    claim_cpu_us_per_task: float | None


def command() -> list[str]:
    """Give the command line of the worker."""
    return fleet.worker("bench.app:app", concurrency=worker.CONCURRENCY)


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds, delayed and due in turns."""
    for number in range(1, plan.rounds + 1):
        fsync_ms = machine.fsync_ms(bench.server.directory)
        due = _due(bench, plan.tasks) if number % 2 == 0 else None
        wave = _delayed(bench, plan.tasks)
        due = due or _due(bench, plan.tasks)
        rate = plan.tasks / wave.seconds
        figures: Figures = {
            "delayed_to_due": rate / due.rate,
            "rate_delayed": rate,
            "rate_due": due.rate,
            "seconds_delayed": wave.seconds,
            "first_start_ms": wave.first_s * 1000,
            "lateness_p50_ms": wave.p50_s * 1000,
            "lateness_p99_ms": wave.p99_s * 1000,
            "claim_cpu_us_per_task_delayed": wave.claim_cpu_us_per_task,
            "claim_cpu_us_per_task_due": due.claim_cpu_us_per_task,
            "fsync_ms": fsync_ms,
        }
        progress(
            f"delayed {number}/{plan.rounds}: {rate:,.0f} tasks/s, {due.rate:,.0f} when due already; "
            f"first start {figures['first_start_ms']:.1f} ms late, p99 {figures['lateness_p99_ms']:,.0f} ms"
        )
        outcome.rounds.append(figures)


def _due(bench: Bench, tasks: int) -> together.Together:
    bench.fill(tasks)
    done = together.drained(bench, [command()], tasks)
    bench.span(tasks)
    return done


def _delayed(bench: Bench, tasks: int) -> Wave:
    bench.fill(0)
    with (
        fleet.Fleet(bench, command()) as workers,
        BackendSampler(bench.admin_dsn, bench.name) as sampler,
    ):
        workers.ready(1)
        time.sleep(together.SETTLE_S)
        due = bench.value(
            "SELECT date_trunc('second', clock_timestamp()) + make_interval(secs => %s)",
            round(LEAD_S + tasks / INSERTS_PER_S),
        )
        bench.connection.execute(
            "INSERT INTO pgtasks.tasks (name, run_at) SELECT 'noop', %s FROM generate_series(1, %s)", (due, tasks)
        )
        bench.connection.execute("VACUUM (ANALYZE) pgtasks.tasks")
        assert time.time() < due.timestamp(), "the tasks fell due before they were all there: the run is not valid"
        is_empty = bench.emptiness()
        workers.sleep(due.timestamp() - time.time())
        workers.until(is_empty, DONE_S, "all is done")
        workers.stop()
    return _wave(bench, tasks, due, sampler)


def _wave(bench: Bench, tasks: int, due: Any, sampler: BackendSampler) -> Wave:
    row = bench.connection.execute(_LATENESS.encode()).fetchone()
    assert row is not None
    done, first_s, p50_s, p99_s, seconds = row
    assert done == tasks, f"{done} of {tasks} tasks are in history: the run is not valid"
    assert first_s >= 0, f"a task started {-first_s:.3f} s before it was due"
    used_s = sampler.used_s("claim", due.timestamp(), due.timestamp() + seconds)
    return Wave(seconds, first_s, p50_s, p99_s, None if used_s is None else used_s / tasks * 1e6)


SCENARIO = Scenario(
    name="delayed",
    summary=(__doc__ or "").partition("\n")[0],
    keys=no_rivals(*KEYS),
    plan=Plan(tasks=100_000, rounds=5),
    measure=measure,
    worker_command=command(),
)
