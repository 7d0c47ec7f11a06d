"""Ten workers on one queue against two and one: what they do together.

All of them are up and idle before the queue, which is full and paused, is resumed. Each claim
of a worker passes over what the others have claimed, and skips what they are claiming.
"""

from __future__ import annotations

from bench import fleet, machine, together, worker
from bench.database import Bench
from bench.report import Budget, Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals

COUNTS = {1: "one", 2: "two", 10: "ten"}
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


def command() -> list[str]:
    """Give the command line of each worker."""
    return fleet.worker("bench.app:app", concurrency=worker.CONCURRENCY)


def measure(bench: Bench, plan: Plan) -> Outcome:
    """Run all rounds: one, two and ten workers, in an order that turns around each time."""
    outcome = Outcome()
    for number in range(1, plan.rounds + 1):
        counts = sorted(COUNTS, reverse=number % 2 == 0)
        fsync_ms = machine.fsync_ms(bench.server.directory)
        runs = {COUNTS[count]: _run(bench, plan.tasks, count) for count in counts}
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


def _run(bench: Bench, tasks: int, count: int) -> together.Together:
    bench.fill(tasks)
    done = together.drained(bench, [command()] * count, tasks)
    # By history the time is that from the first claim on.
    return done._replace(rate=tasks / bench.span(tasks).seconds)


SCENARIO = Scenario(
    name="contention",
    summary=(__doc__ or "").partition("\n")[0],
    keys=no_rivals(*KEYS),
    plan=Plan(tasks=1_000_000, rounds=3),
    measure=measure,
    worker_command=command(),
)
