"""How fast a backlog is drained for a minute while an old snapshot is held open, against the same without one.

The snapshot is taken before the first claim and kept until after the last, in the database that is
measured. The backlog is one that outlasts the time, so that the rate is a sustained one and a
queue that gets slower with what it has finished shows it. The first run of a server, which makes the files
that later ones find, is none of those that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench import fleet, machine, worker
from bench.cpu import BackendSampler
from bench.database import Bench
from bench.report import Budget, Figures, Key, progress
from bench.rivals import RIVALS, run
from bench.rivals.beside import Field
from bench.rivals.rival import Rival, Unavailable
from bench.scenario import Outcome, Plan, Scenario
from bench.snapshot import held

TENTHS = 10
BEGIN_S = 60.0
# The share of a run's time for the one that does not count.
WARM_UP = 0.25
# The backlog of a rival is one that would last it for the time at this rate; a faster one is measured until it is done.
RIVAL_RATE_MAX = 80_000
KEYS = (
    Key("held_to_free", "rate with the snapshot against the one without, round by round", 2, Budget(least=0.9)),
    Key("rate_held", "tasks per second with the snapshot held open"),
    Key("rate_free", "the same without one"),
    Key("rate_held_first_tenth", "with the snapshot, in the first tenth of the time"),
    Key("rate_held_last_tenth", "the same in the last tenth"),
    Key("dead_rows_held", "rows of tasks that vacuum could not remove by the end"),
    Key("worker_cpu_us_per_task_held", "CPU of the worker process, with the snapshot", 1),
    Key("worker_cpu_us_per_task_free", "the same without one", 1),
    Key("backend_cpu_us_per_task_held", "CPU of its server processes, with the snapshot", 1),
    Key("backend_cpu_us_per_task_free", "the same without one", 1),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)
# What one run's statement about its tenths needs; by the time that a task was finished.
_BY_TENTH = """
    WITH span AS (
        SELECT min(started_at) AS began, extract(EPOCH FROM max(finished_at) - min(started_at)) AS lasted
        FROM pgtasks.history
    ),

    finished AS (
        SELECT
            width_bucket(extract(EPOCH FROM h.finished_at - s.began), 0, least(%(seconds)s::numeric, s.lasted), 10)
                AS tenth,
            count(*) AS tasks
        FROM pgtasks.history AS h, span AS s
        GROUP BY 1
    )

    SELECT least(%(seconds)s::numeric, s.lasted)::double precision, f.tenth, f.tasks
    FROM finished AS f, span AS s
    ORDER BY f.tenth
"""


class TimedRun(NamedTuple):
    """What one worker did of a backlog in a time: seconds, and tasks finished in each tenth of them."""

    seconds: float
    by_tenth: list[int]
    dead_rows: float
    worker_cpu_us: float | None
    backend_cpu_us: float | None

    @property
    def rate(self) -> float:
        """Tasks per second over the whole time."""
        return sum(self.by_tenth) / self.seconds

    def tenth(self, number: int) -> float:
        """Tasks per second in one tenth of it."""
        return self.by_tenth[number] / (self.seconds / TENTHS)


def command() -> list[str]:
    """Give the command line of the worker, which stays until it is told to stop."""
    return fleet.worker("bench.app:app", concurrency=worker.CONCURRENCY)


def keys(rivals: Sequence[str]) -> Sequence[Key]:
    """Give the figures, those of the rivals at the end."""
    theirs = [
        key
        for name in rivals
        for key in (
            Key(f"rival.{name}.held_to_free", f"{RIVALS[name].title}: rate with the snapshot against without", 2),
            Key(f"rival.{name}.rate_held", "tasks per second with the snapshot held open"),
            Key(f"rival.{name}.rate_free", "the same without one"),
        )
    ]
    return (*KEYS, *theirs)


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds, with and without the snapshot in turns, then each rival the same way."""
    field = Field(bench, plan.rivals, outcome.missing)
    by_tenth = []
    drain(bench, plan._replace(seconds=plan.seconds * WARM_UP), is_held=False)
    for number in range(1, plan.rounds + 1):
        order = (True, False) if number % 2 else (False, True)
        fsync_ms = machine.fsync_ms(bench.server.directory)
        runs = {is_held: drain(bench, plan, is_held=is_held) for is_held in order}
        figures = {**_figures(runs[True], runs[False]), "fsync_ms": fsync_ms}
        by_tenth.append([round(runs[True].tenth(tenth)) for tenth in range(TENTHS)])
        progress(
            f"held {number}/{plan.rounds}: {figures['rate_held']:,.0f} tasks/s held, {figures['rate_free']:,.0f} free, "
            f"ratio {figures['held_to_free']:.2f}"
        )
        outcome.rounds.append({**figures, **field.each(partial(_rival, bench, plan, order))})
    outcome.facts["rate_held_by_tenth"] = by_tenth


def drain(bench: Bench, plan: Plan, *, is_held: bool) -> TimedRun:
    """Let one worker drain a backlog for a time, with or without the snapshot."""
    bench.fill(plan.tasks)
    with held(bench.dsn) if is_held else nullcontext():
        with (
            BackendSampler(bench.admin_dsn, bench.name) as sampler,
            fleet.Fleet(bench, command()) as workers,
        ):
            workers.until(lambda: bench.value("SELECT EXISTS (SELECT FROM pgtasks.history)"), BEGIN_S, "a task is done")
            workers.sleep(plan.seconds)
            usage = workers.stop()
        dead_rows = bench.value("SELECT n_dead_tup FROM pg_stat_all_tables WHERE relid = 'pgtasks.tasks'::regclass")
    done = _finished(bench, plan.tasks)
    rows = bench.connection.execute(_BY_TENTH.encode(), {"seconds": plan.seconds}).fetchall()
    counts = {tenth: tasks for _, tenth, tasks in rows}
    # The very last one of a run that was shorter, if by a moment, stands on the upper bound.
    is_shorter = rows[0][0] < plan.seconds
    by_tenth = [counts.get(tenth, 0) for tenth in range(1, TENTHS + 1)]
    by_tenth[-1] += counts.get(TENTHS + 1, 0) if is_shorter else 0
    if done == plan.tasks:
        progress(f"held: the backlog lasted for {rows[0][0]:.1f} s only; more --tasks would make it last")
    return TimedRun(
        seconds=rows[0][0],
        by_tenth=by_tenth,
        dead_rows=float(dead_rows),
        worker_cpu_us=usage.cpu_s / done * 1e6,
        backend_cpu_us=sampler.cpu_s() / done * 1e6 or None,
    )


def _rival(bench: Bench, plan: Plan, order: Sequence[bool], rival: Rival) -> Figures:
    """Measure a rival with and without the snapshot, in the order of this round."""
    tasks = min(plan.tasks, round(RIVAL_RATE_MAX * plan.seconds))
    rates = {
        is_held: run.run(rival, bench, tasks, plan.seconds, _held if is_held else run.nothing).rate for is_held in order
    }
    progress(f"  {rival.name}: {rates[True]:,.0f} tasks/s held, {rates[False]:,.0f} free")
    return {
        f"rival.{rival.name}.held_to_free": rates[True] / rates[False],
        f"rival.{rival.name}.rate_held": rates[True],
        f"rival.{rival.name}.rate_free": rates[False],
    }


def _held(dsn: str) -> AbstractContextManager[None]:
    """Hold a snapshot in a rival's database; raises Unavailable when that is none of PostgreSQL's."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise Unavailable("it keeps its tasks elsewhere, where there is no snapshot to hold") from None
    return held(dsn)


def _finished(bench: Bench, tasks: int) -> int:
    """Count what was finished, once the worker has stopped; together with what is left it has to be all."""
    done: int = bench.value("SELECT count(*) FROM pgtasks.history WHERE status = 'completed'")
    left: int = bench.value("SELECT count(*) FROM pgtasks.tasks WHERE state = 'queued' AND lease_id IS NULL")
    assert done + left == tasks, f"{done} tasks are in history and {left} are left of {tasks}: the run is not valid"
    return done


def _figures(with_it: TimedRun, without: TimedRun) -> Figures:
    return {
        "held_to_free": with_it.rate / without.rate,
        "rate_held": with_it.rate,
        "rate_free": without.rate,
        "rate_held_first_tenth": with_it.tenth(0),
        "rate_held_last_tenth": with_it.tenth(-1),
        "rate_free_first_tenth": without.tenth(0),
        "rate_free_last_tenth": without.tenth(-1),
        "dead_rows_held": with_it.dead_rows,
        "dead_rows_free": without.dead_rows,
        "worker_cpu_us_per_task_held": with_it.worker_cpu_us,
        "worker_cpu_us_per_task_free": without.worker_cpu_us,
        "backend_cpu_us_per_task_held": with_it.backend_cpu_us,
        "backend_cpu_us_per_task_free": without.backend_cpu_us,
    }


SCENARIO = Scenario(
    name="held",
    summary=(__doc__ or "").partition("\n")[0],
    keys=keys,
    plan=Plan(tasks=6_000_000, rounds=2, seconds=60),
    measure=measure,
    has_rivals=True,
    worker_command=command(),
)
