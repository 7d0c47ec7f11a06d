"""What a claim costs with ten thousand tasks in the queue, with a million, and with five.

Each backlog is in a database of its own on the one server, filled once, so that all take turns within
a round. While a worker runs, each finished task is replaced by one at the end of its queue: the
backlog stays what it is, and the inserts beside the claims are the same for all. Before a cold run
the queue is thrown out of the server's cache, so it makes no difference what ran before it; the blocks
that were read say how cold it was.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench import fleet, level, machine, worker
from bench.database import Bench
from bench.level import Level
from bench.report import Budget, Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals

BACKLOGS = {"10k": 10_000, "1m": 1_000_000, "5m": 5_000_000}
COLD = "cold"
KEYS = (
    Key("ratio", "CPU of the claiming server process per task, 5 million against 10 thousand", 2, Budget(most=1.3)),
    Key("ratio_1m", "the same for 1 million", 2),
    Key("ratio_cold", "for 5 million whose head is not in the server's cache, but the system's", 2),
    Key("ratio_rate", "tasks per second, 5 million against 10 thousand", 2),
    *(
        key
        for name, length in BACKLOGS.items()
        for key in (
            Key(f"claim_us_{name}", f"microseconds of that CPU per task, {length:,} in the queue", 2),
            Key(f"finish_us_{name}", "the same of the one that completes", 2),
            Key(f"rate_{name}", "tasks per second, and as many inserts"),
        )
    ),
    Key("claim_us_cold", "microseconds per task with 5 million, the head not in the server's cache", 2),
    Key("blocks_read_cold", "blocks that the server asked the system for, of those 5 million, per 1,000 tasks", 1),
    Key("blocks_read_5m", "the same where the head had been read before", 1),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Fill each backlog once, then run all rounds, in an order that turns around each time."""
    with ExitStack() as stack:
        levels = {}
        # The longest one first: the inserts of the others put its head out of the server's cache.
        for name, length in sorted(BACKLOGS.items(), key=lambda item: -item[1]):
            progress(f"backlog: filling a queue with {length:,}")
            levels[name] = stack.enter_context(level.made(bench, length))
        for number in range(1, plan.rounds + 1):
            figures = _round(bench, levels, plan.tasks, is_turned=number % 2 == 0)
            outcome.rounds.append(figures)
            progress(
                f"backlog {number}/{plan.rounds}: claims "
                + ", ".join(f"{_us(figures[f'claim_us_{name}'])} us with {name}" for name in (*BACKLOGS, COLD))
                + f"; {figures['rate_10k']:,.0f} and {figures['rate_5m']:,.0f} tasks/s; "
                f"blocks read per 1,000 tasks {figures['blocks_read_5m']:.1f}, cold {figures['blocks_read_cold']:.1f}"
            )
    outcome.facts["backlogs"] = dict(BACKLOGS)


def _round(bench: Bench, levels: dict[str, Level], tasks: int, *, is_turned: bool) -> Figures:
    fsync_ms = machine.fsync_ms(bench.server.directory)
    names = [*levels, COLD]
    found = {
        name: levels["5m" if name == COLD else name].drain(tasks, is_warm=name != COLD)
        for name in (reversed(names) if is_turned else names)
    }
    least = found["10k"]
    return {
        "ratio": _ratio(found["5m"].claim_us, least.claim_us),
        "ratio_1m": _ratio(found["1m"].claim_us, least.claim_us),
        "ratio_cold": _ratio(found[COLD].claim_us, least.claim_us),
        "ratio_rate": found["5m"].rate / least.rate,
        **{f"{figure}_{name}": value for name, costs in found.items() for figure, value in costs._asdict().items()},
        "fsync_ms": fsync_ms,
    }


def _ratio(ours: float | None, least: float | None) -> float | None:
    return None if ours is None or least is None else ours / least


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


SCENARIO = Scenario(
    name="backlog",
    summary=(__doc__ or "").partition("\n")[0],
    keys=no_rivals(*KEYS),
    plan=Plan(tasks=200_000, rounds=5),
    measure=measure,
    worker_command=fleet.worker("bench.app:app", concurrency=worker.CONCURRENCY),
)
