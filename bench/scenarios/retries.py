"""A storm of retries: half of the tasks fail once, against the same with none that fails.

What fails raises an ordinary exception and is due again 10 ms later, behind the whole backlog. It costs
a traceback, a row of `attempts`, a log line and a second claim; so a storm of N tasks is 1.5 N attempts.
The budget is about tasks, not attempts: half the tasks per second would be the half that counts. What of
that is PostgreSQL's, the bare SQL loop shows, which does the same with nothing around it.
"""

from __future__ import annotations

from typing import NamedTuple

from bench import fleet, floor, machine, worker
from bench.cpu import BackendSampler
from bench.database import Bench
from bench.report import Budget, Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals

APP = "bench.apps.mixed:app"
DRAIN_S = 600.0
KEYS = (
    Key("storm_to_calm", "tasks per second, the one against the other, round by round", 2, Budget(least=0.5)),
    Key("storm_to_calm_attempts", "the same by attempts, of which a storm has half as many again", 2),
    Key("floor_storm_to_calm", "by tasks, for the bare SQL loop, which runs no handlers", 2),
    Key("rate_storm", "tasks per second while half of them fail once"),
    Key("attempts_rate_storm", "attempts per second then"),
    Key("rate_calm", "tasks per second with none that fails"),
    Key("worker_cpu_us_per_attempt_storm", "CPU of the worker process", 1),
    Key("worker_cpu_us_per_attempt_calm", "the same with none that fails", 1),
    Key("backend_cpu_us_per_attempt_storm", "CPU of its server processes", 1),
    Key("backend_cpu_us_per_attempt_calm", "the same with none that fails", 1),
    Key("wal_bytes_per_task_storm", "WAL, from the first claim to history"),
    Key("floor_rate_storm", "tasks per second of the SQL loop while half of them fail once"),
    Key("floor_rate_calm", "the same with none that fails"),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)


class Drained(NamedTuple):
    """What one worker did of a full queue."""

    rate: float
    attempts_rate: float
    worker_cpu_us_per_attempt: float
    backend_cpu_us_per_attempt: float | None
    wal_bytes_per_task: float


def command() -> list[str]:
    """Give the command line of the worker, which is not to leave before the last failures are due again."""
    return fleet.worker(APP, concurrency=worker.CONCURRENCY)


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds, storm and calm in turns."""
    for number in range(1, plan.rounds + 1):
        fsync_ms = machine.fsync_ms(bench.server.directory)
        order = (True, False) if number % 2 else (False, True)
        runs = {is_storm: drain(bench, plan.tasks, is_storm=is_storm) for is_storm in order}
        storm, calm = runs[True], runs[False]
        floors = {is_storm: _floor(bench, plan.tasks, is_storm=is_storm).rate for is_storm in order}
        figures: Figures = {
            "storm_to_calm": storm.rate / calm.rate,
            "storm_to_calm_attempts": storm.attempts_rate / calm.attempts_rate,
            "floor_storm_to_calm": floors[True] / floors[False],
            "floor_rate_storm": floors[True],
            "floor_rate_calm": floors[False],
            **{f"{key}_storm": value for key, value in storm._asdict().items()},
            **{f"{key}_calm": value for key, value in calm._asdict().items()},
            "fsync_ms": fsync_ms,
        }
        progress(
            f"retries {number}/{plan.rounds}: {storm.rate:,.0f} tasks/s in the storm, {calm.rate:,.0f} without, "
            f"ratio {figures['storm_to_calm']:.2f}, by attempts {figures['storm_to_calm_attempts']:.2f}; "
            f"SQL loop {figures['floor_storm_to_calm']:.2f}"
        )
        outcome.rounds.append(figures)


def drain(bench: Bench, tasks: int, *, is_storm: bool) -> Drained:
    """Let one worker drain a full queue, of which in a storm every second task fails once."""
    _fill(bench, tasks, is_storm=is_storm)
    before = bench.counters()
    with (
        BackendSampler(bench.admin_dsn, bench.name) as sampler,
        fleet.Fleet(bench, command()) as workers,
    ):
        workers.until(bench.emptiness(), DRAIN_S, "every task is done")
        usage = workers.stop()
    wal_bytes = bench.counters().wal_bytes - before.wal_bytes
    span = bench.span(tasks)
    failed = _failed(bench, tasks, is_storm=is_storm)
    attempts = tasks + failed
    return Drained(
        rate=tasks / span.seconds,
        attempts_rate=attempts / span.seconds,
        worker_cpu_us_per_attempt=usage.cpu_s / attempts * 1e6,
        backend_cpu_us_per_attempt=sampler.cpu_s() / attempts * 1e6 or None,
        wal_bytes_per_task=wal_bytes / tasks,
    )


def _floor(bench: Bench, tasks: int, *, is_storm: bool) -> floor.FloorRun:
    _fill(bench, tasks, is_storm=is_storm)
    done = floor.run(bench, tasks)
    _failed(bench, tasks, is_storm=is_storm)
    return done


def _fill(bench: Bench, tasks: int, *, is_storm: bool) -> None:
    bench.fill(tasks, ("noop", floor.FAILS if is_storm else "steady"))


def _failed(bench: Bench, tasks: int, *, is_storm: bool) -> int:
    """Count the attempts that failed, as many as were meant to."""
    failed: int = bench.value("SELECT count(*) FROM pgtasks.attempts WHERE outcome = 'failed'")
    assert failed == ((tasks + 1) // 2 if is_storm else 0), (
        f"{failed} of {tasks} tasks failed once: the run is not valid"
    )
    return failed


SCENARIO = Scenario(
    name="retries",
    summary=(__doc__ or "").partition("\n")[0],
    keys=no_rivals(*KEYS),
    plan=Plan(tasks=500_000, rounds=5),
    measure=measure,
    worker_command=command(),
)
