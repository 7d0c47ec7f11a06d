"""Half an hour of mixed tasks at a steady rate: what grows, what gets slower, and whether anything is lost.

A producer of its own enqueues in small batches, in an open loop: tasks that succeed, tasks that fail once,
tasks that are due some seconds later, and tasks that end as dead letters. Every sixtieth of the time, or every
ten seconds, the worker's memory, the size of the tables and the metrics page are looked at.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import fleet, machine, series, steady, worker
from bench.database import Bench
from bench.report import Budget, Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals

APP = "bench.apps.mixed:app"
EVERY_S, SAMPLES_LEAST = 10.0, 60
# The caches of the worker and of its connections fill up in the first part of the time.
SETTLED, TENTH = 0.05, 0.1
DONE_S = 120.0
KEYS = (
    Key("worker_growth_mib", "memory of the worker process, from when it had settled to the end", 1, Budget(most=10)),
    Key("claim_p99_last_to_first", "99th percentile of claims, last tenth against first", 2, Budget(most=1.5)),
    Key("claim_p99_ms_first_tenth", "the first tenth begins when the worker has settled", 2),
    Key("claim_p99_ms_last_tenth", "of the time from sending a claim until its rows are there", 2),
    Key(
        "lateness_p99_ms_first_tenth",
        "99th percentile of starts, from when a task is due by the clock at its insert",
        1,
    ),
    Key("lateness_p99_ms_last_tenth", "the same in the last tenth", 1),
    Key(
        "lateness_from_plan_p99_ms_first_tenth",
        "99th percentile of first starts, from when the batch was meant to be enqueued",
        1,
    ),
    Key("lateness_from_plan_p99_ms_last_tenth", "the same in the last tenth", 1),
    Key("rate", "tasks per second that were enqueued"),
    Key("done", "tasks that ended, each the way it had to"),
    Key("worker_mib_last", "memory of the worker process at the end", 1),
    Key("tasks_table_mib_first", "the table of living tasks and its indexes, when the worker had settled", 1),
    Key("tasks_table_mib_last", "the same at the end", 1),
    Key("dead_rows_max", "rows of tasks that waited for vacuum, the most of all looks"),
    Key("dead_rows_last", "the same at the end"),
    Key("worker_cpu_us_per_task", "CPU of the worker process, retries included", 1),
    Key("producer_late_s_max", "how far the producer was behind its plan at worst, which lateness leaves out", 2),
    Key("producer_late_p99_ms", "the same, 99th percentile of its batches", 1),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)
_LATENESS = """
    SELECT extract(
        EPOCH FROM percentile_disc(0.99) WITHIN GROUP (ORDER BY started_at - run_at)
    )::double precision * 1000
    FROM pgtasks.history
    WHERE started_at >= to_timestamp(%s) AND started_at < to_timestamp(%s)
"""
# Of tasks that were due at once and did not fail: a batch's rows were created after its call, and before the next.
_FROM_PLAN = """
    SELECT percentile_disc(0.99) WITHIN GROUP (
        ORDER BY h.started_s - (%(planned_s)s::double precision[])[
            width_bucket(h.created_s, %(called_s)s::double precision[])
        ]
    ) * 1000
    FROM (
        SELECT
            extract(EPOCH FROM started_at)::double precision AS started_s,
            extract(EPOCH FROM created_at)::double precision AS created_s
        FROM pgtasks.history
        WHERE started_at >= to_timestamp(%(start_s)s) AND started_at < to_timestamp(%(end_s)s)
            AND attempt = 1 AND run_at <= created_at
    ) AS h
"""


def command(port: int = 9187) -> list[str]:
    """Give the command line of the worker."""
    return fleet.worker(APP, "--metrics-port", str(port), concurrency=worker.CONCURRENCY)


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds, of which one is enough."""
    found = []
    for number in range(1, plan.rounds + 1):
        figures, samples = _round(bench, plan)
        outcome.rounds.append(figures)
        found.append(samples)
        progress(
            f"soak {number}/{plan.rounds}: {figures['done']:,.0f} tasks, p99 of claims "
            f"{series.shown(figures['claim_p99_ms_first_tenth'])} ms at first and "
            f"{series.shown(figures['claim_p99_ms_last_tenth'])} ms at last, "
            f"worker grew by {series.shown(figures['worker_growth_mib'])} MiB, p99 of lateness from the plan "
            f"{series.shown(figures['lateness_from_plan_p99_ms_last_tenth'])} ms at last"
        )
    outcome.facts["series"] = [[sample._asdict() for sample in samples] for samples in found]


def _round(bench: Bench, plan: Plan) -> tuple[Figures, list[series.Sample]]:
    bench.fill(0)
    fsync_ms, port = machine.fsync_ms(bench.server.directory), fleet.free_port()
    with tempfile.TemporaryDirectory() as folder, fleet.Fleet(bench, command(port)) as workers:
        workers.ready(1)
        said = Path(folder) / "sent.json"
        producer = fleet.module("bench.steady", str(plan.tasks), str(plan.seconds), str(said))
        began_at = time.time()
        with fleet.Fleet(bench, producer) as producers:
            samples = _watched(bench, plan.seconds, workers, port)
            producers.wait(plan.seconds + DONE_S)
        sent = steady.read(said)
        workers.until(bench.emptiness(), DONE_S, "all is done")
        usage = workers.stop()
    done = _done(bench, sent.counts)
    figures = _figures(plan.seconds, samples)
    for name, start in (("first", SETTLED), ("last", 1 - TENTH)):
        start_s, end_s = (began_at + part * plan.seconds for part in (start, start + TENTH))
        figures[f"lateness_p99_ms_{name}_tenth"] = bench.value(_LATENESS, start_s, end_s)
        figures[f"lateness_from_plan_p99_ms_{name}_tenth"] = from_plan_p99_ms(bench, sent, start_s, end_s)
    return {
        **figures,
        "rate": done / plan.seconds,
        "done": done,
        "worker_cpu_us_per_task": usage.cpu_s / done * 1e6,
        "producer_late_s_max": max(sent.late_s),
        "producer_late_p99_ms": sorted(sent.late_s)[math.ceil(len(sent.late_s) * 0.99) - 1] * 1000,
        "fsync_ms": fsync_ms,
    }, samples


def from_plan_p99_ms(bench: Bench, sent: steady.Sent, start_s: float, end_s: float) -> float | None:
    """Give the 99th percentile of starts between two moments, from when their batches were meant to be enqueued."""
    window = {"start_s": start_s, "end_s": end_s}
    params = {"planned_s": sent.planned_s, "called_s": sent.called_s, **window}
    row = bench.connection.execute(_FROM_PLAN.encode(), params).fetchone()
    assert row is not None
    found: float | None = row[0]
    return found


def _watched(bench: Bench, seconds: float, workers: fleet.Fleet, port: int) -> list[series.Sample]:
    """Look now and then while the time goes by."""
    every_s, began = min(EVERY_S, seconds / SAMPLES_LEAST), time.monotonic()
    samples: list[series.Sample] = []
    for number in itertools.count():
        workers.sleep(max(0.0, began + number * every_s - time.monotonic()))
        at_s = time.monotonic() - began
        samples.append(series.sample(bench, at_s, workers.pids[0], port))
        if at_s >= seconds:
            return samples
        if number % SAMPLES_LEAST == SAMPLES_LEAST - 1:
            last = samples[-1]
            progress(
                f"  {at_s:,.0f} s: worker {series.shown(last.worker_mib)} MiB, tasks {last.tasks_mib:.1f} MiB, "
                f"{last.dead_rows:,} dead rows"
            )
    raise AssertionError("not reached")


def _figures(seconds: float, samples: list[series.Sample]) -> Figures:
    settled = next(sample for sample in samples if sample.at_s >= SETTLED * seconds)
    first = series.claim_p99_ms(samples, SETTLED * seconds, (SETTLED + TENTH) * seconds)
    last = series.claim_p99_ms(samples, (1 - TENTH) * seconds, seconds)
    end = samples[-1]
    grown = None if end.worker_mib is None or settled.worker_mib is None else end.worker_mib - settled.worker_mib
    return {
        "worker_growth_mib": grown,
        "claim_p99_last_to_first": last / first if first and last else None,
        "claim_p99_ms_first_tenth": first,
        "claim_p99_ms_last_tenth": last,
        "worker_mib_last": end.worker_mib,
        "tasks_table_mib_first": settled.tasks_mib,
        "tasks_table_mib_last": end.tasks_mib,
        "dead_rows_max": max(sample.dead_rows for sample in samples),
        "dead_rows_last": end.dead_rows,
    }


def _done(bench: Bench, sent: dict[str, int]) -> int:
    """Count what ended; raises AssertionError unless each task ended the way that its kind has to."""
    counted: dict[str, Any] = {
        "completed": bench.value("SELECT count(*) FROM pgtasks.history WHERE status = 'completed'"),
        "dead": bench.value("SELECT count(*) FROM pgtasks.dead_letters WHERE name = 'doomed'"),
        "failed once": bench.value("SELECT count(*) FROM pgtasks.attempts WHERE name = 'flaky'"),
        "left": bench.value("SELECT count(*) FROM pgtasks.tasks"),
    }
    doomed = sent.get("doomed", 0)
    due = {
        "completed": sum(sent.values()) - doomed,
        "dead": doomed,
        "failed once": sent.get("flaky", 0),
        "left": 0,
    }
    assert counted == due, f"there are {counted} and there should be {due}: the run is not valid"
    return sum(sent.values())


SCENARIO = Scenario(
    name="soak",
    summary=(__doc__ or "").partition("\n")[0],
    keys=no_rivals(*KEYS),
    # So many that it is 5,000 a second.
    plan=Plan(tasks=9_000_000, rounds=1, seconds=1800),
    measure=measure,
    worker_command=command(),
)
