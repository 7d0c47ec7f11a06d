"""Ten workers on one queue against two and one: what they do together.

All of them are up and idle before the queue, which is full and paused, is resumed. Each claim
of a worker begins behind what the others have claimed, and leaves out what they are claiming.

What of that is contention, and what is a machine with more processes than cores, two things show: ten
workers with a queue of their own each, which share no page of the table; and ten processes of the bare SQL loop
on one queue. (Two such loops, which wait for each other's half, leave cores idle that two workers do not.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bench import fleet, machine, together, worker
from bench.database import Bench
from bench.report import Budget, Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals
from bench.together import Together
from pgtasks.settings import QUEUE_DEFAULT

COUNTS = {1: "one", 2: "two", 10: "ten"}
# Those whose figures are compared with the most.
FEW = "two"
APART = "ten_queues"
KEYS = (
    Key("ten_to_two", "tasks per second of ten workers against two, round by round", 2, Budget(least=1.0)),
    Key("ten_to_one", "of ten workers against one", 2),
    Key("one_queue_to_ten", "of ten workers on one queue against ten with a queue of their own each", 2),
    Key("floor_ten_to_two", "of ten processes of the bare SQL loop against two", 2),
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
    Key("rate_ten_queues", "tasks per second of ten workers with a queue each"),
    Key("worker_cpu_us_per_task_ten_queues", "CPU of the worker processes then", 1),
    Key("claim_cpu_us_per_task_ten_queues", "CPU of the server processes that claim then", 1),
    Key("floor_rate_two", "tasks per second of two SQL loops"),
    Key("floor_rate_ten", "of ten"),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)


def command(*queues: str) -> list[str]:
    """Give the command line of each worker."""
    options = [part for queue in queues for part in ("-q", queue)]
    return fleet.worker("bench.app:app", *options, concurrency=worker.CONCURRENCY)


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds: one, two and ten workers, and what they are compared with, in an order that turns around."""
    tasks, many = plan.tasks, max(COUNTS)
    kinds: dict[str, Callable[[], Together]] = {
        **{name: partial(_workers, bench, tasks, count) for count, name in COUNTS.items()},
        APART: partial(_apart, bench, tasks, many),
        **{f"floor_{name}": partial(_floors, bench, tasks, count) for count, name in COUNTS.items() if count > 1},
    }
    for number in range(1, plan.rounds + 1):
        fsync_ms = machine.fsync_ms(bench.server.directory)
        done = {kind: kinds[kind]() for kind in (kinds if number % 2 else reversed(kinds))}
        runs, apart = {name: done[name] for name in COUNTS.values()}, done[APART]
        floors = {name: done[f"floor_{name}"].rate for name in (FEW, "ten")}
        figures: Figures = {
            "ten_to_two": runs["ten"].rate / runs[FEW].rate,
            "ten_to_one": runs["ten"].rate / runs["one"].rate,
            "one_queue_to_ten": runs["ten"].rate / apart.rate,
            "floor_ten_to_two": floors["ten"] / floors[FEW],
            **{f"{key}_{name}": value for name, run in runs.items() for key, value in run._asdict().items()},
            **{f"{key}_ten_queues": value for key, value in apart._asdict().items()},
            **{f"floor_rate_{name}": rate for name, rate in floors.items()},
            "fsync_ms": fsync_ms,
        }
        progress(
            f"contention {number}/{plan.rounds}: "
            + ", ".join(f"{COUNTS[count]} {runs[COUNTS[count]].rate:,.0f}" for count in sorted(COUNTS))
            + f" tasks/s, ten to two {figures['ten_to_two']:.2f}; with a queue each {apart.rate:,.0f}; "
            f"SQL loops, ten to two {figures['floor_ten_to_two']:.2f}"
        )
        outcome.rounds.append(figures)


def _workers(bench: Bench, tasks: int, count: int) -> Together:
    bench.fill(tasks)
    return _drained(bench, [command()] * count, tasks)


def _apart(bench: Bench, tasks: int, count: int) -> Together:
    """Let each worker have a queue of its own, with its share of the tasks."""
    queues = [f"queue-{number}" for number in range(count)]
    bench.fill(tasks, queues=queues)
    return _drained(bench, [command(queue) for queue in queues], tasks, queues)


def _floors(bench: Bench, tasks: int, count: int) -> Together:
    bench.fill(tasks)
    return _drained(bench, [fleet.module("bench.floor")] * count, tasks)


def _drained(
    bench: Bench, commands: Sequence[Sequence[str]], tasks: int, queues: Sequence[str] = (QUEUE_DEFAULT,)
) -> Together:
    done = together.drained(bench, commands, tasks, queues)
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
