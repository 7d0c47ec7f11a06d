"""How fast handlers of 1 ms, 10 ms and 100 ms are run, `async def` and `def`, against slots / duration.

The handlers sleep, so that what is measured is how well a worker keeps its slots busy. The ideal is
what its slots could do if each started the next task the moment that one ends. For handlers of
1 ms it is beyond what one process can do, and the rate is the worker's own limit. An `async def`
handler costs no thread, so there are many slots; each `def` handler has a thread of its own.
"""

from __future__ import annotations

from bench import fleet, machine, together
from bench.apps.sleepers import DURATIONS_MS
from bench.database import Bench
from bench.report import Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals

CONCURRENCY = {"async": 500, "sync": 50}
CASES = [(kind, duration_ms) for kind in CONCURRENCY for duration_ms in DURATIONS_MS]
_APP = "bench.apps.sleepers:app"
KEYS = (
    *(
        key
        for kind, ms in CASES
        for key in (
            Key(f"rate_{kind}_{ms}ms", f"tasks per second, {kind} handlers of {ms} ms, {CONCURRENCY[kind]} slots"),
            Key(f"share_of_ideal_{kind}_{ms}ms", f"of {1000 * CONCURRENCY[kind] // ms:,} per second", 3),
            Key(f"worker_cpu_us_per_task_{kind}_{ms}ms", "CPU of the worker process, its start left out", 1),
            Key(f"backend_cpu_us_per_task_{kind}_{ms}ms", "CPU of its server processes, likewise", 1),
        )
    ),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)


def command(kind: str) -> list[str]:
    """Give the command line of the worker for one kind of handlers."""
    return fleet.worker(_APP, concurrency=CONCURRENCY[kind])


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds: each kind and duration once, in an order that turns around each time."""
    outcome.facts |= {"concurrency": CONCURRENCY}
    for number in range(1, plan.rounds + 1):
        figures: Figures = {"fsync_ms": machine.fsync_ms(bench.server.directory)}
        for kind, duration_ms in CASES if number % 2 else reversed(CASES):
            figures |= _case(bench, plan, kind, duration_ms)
        progress(
            f"handlers {number}/{plan.rounds}: of the ideal "
            + ", ".join(f"{kind} {ms} ms {figures[f'share_of_ideal_{kind}_{ms}ms']:.2f}" for kind, ms in CASES)
        )
        outcome.rounds.append(figures)


def _case(bench: Bench, plan: Plan, kind: str, duration_ms: int) -> Figures:
    """Run as many tasks as the ideal would take the plan's seconds for, or the plan's tasks if that is fewer."""
    ideal = 1000 * CONCURRENCY[kind] / duration_ms
    tasks = min(plan.tasks, max(1, int(ideal * plan.seconds)))
    bench.fill(tasks, [f"{kind}_{duration_ms}ms"])
    done = together.drained(bench, [command(kind)], tasks)
    # By history the time is that from the first claim to the last completion.
    rate = tasks / bench.span(tasks).seconds
    return {
        f"rate_{kind}_{duration_ms}ms": rate,
        f"share_of_ideal_{kind}_{duration_ms}ms": rate / ideal,
        f"worker_cpu_us_per_task_{kind}_{duration_ms}ms": done.worker_cpu_us_per_task,
        f"backend_cpu_us_per_task_{kind}_{duration_ms}ms": done.backend_cpu_us_per_task,
    }


SCENARIO = Scenario(
    name="handlers",
    summary=(__doc__ or "").partition("\n")[0],
    keys=no_rivals(*KEYS),
    plan=Plan(tasks=100_000, rounds=3, seconds=4),
    measure=measure,
    worker_command=command("async"),
)
