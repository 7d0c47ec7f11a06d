"""What it costs to add tasks: one by one, in bulk beside raw COPY, and by 16 producers beside no trigger.

The producers are pgbench's, because clients in Python would use more CPU than the inserts and hide
what the trigger costs. All variants that are compared take turns within a round.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from functools import partial

from bench import fleet, flows, machine, producers, worker
from bench.bulk import Added, Bulk
from bench.database import Bench
from bench.flows import Pair
from bench.producers import Limit
from bench.report import Budget, Figures, Key, progress
from bench.rivals import RIVALS, run
from bench.rivals.beside import Field
from bench.rivals.rival import Rival, Unavailable
from bench.scenario import Outcome, Plan, Scenario

# A burst, and what is added one by one, as parts of the plan's tasks, which are the rows of a bulk. The
# producers' slices are as long as the plan's seconds.
BURST, SINGLE = 40, 50
SLICES = 6
STATES = {
    "": (flows.busy, "a worker awake that runs them"),
    "_idle": (flows.idle, "bursts that wake two workers"),
    "_alone": (flows.alone, "no worker at all"),
    "_strangers": (flows.strangers, "a worker asleep that can run none of them"),
}
KEYS = (
    Key("bulk_to_copy", "`enqueue_many` in Python against raw COPY of the same rows", 2, Budget(least=0.7)),
    Key("bulk_rate", "tasks per second of `enqueue_many`, making them included"),
    Key("bulk_async_rate", "the same of `aenqueue_many`"),
    Key("copy_rate", "rows per second of one COPY of lines that are ready"),
    Key("bulk_client_cpu_us_per_task", "CPU of the program", 1),
    Key("bulk_backend_cpu_us_per_task", "CPU of its server process", 1),
    Key("copy_backend_cpu_us_per_task", "the same for COPY", 1),
    *(
        key
        for state, (_, meaning) in STATES.items()
        for key in (
            Key(
                f"trigger_ratio_16_producers{state}",
                f"single inserts with our trigger against none: {meaning}",
                2,
                Budget(least=0.75) if state == "" else None,
            ),
            Key(f"rate_16_producers{state}", "of these, inserts per second with the trigger"),
        )
    ),
    Key("insert_cpu_us", "CPU of a producer's server process per insert, no worker at all", 1),
    Key("insert_cpu_us_without_trigger", "the same without the trigger", 1),
    Key("client_cpu_share", "the producers' own part of the CPU time that they and their server processes used", 2),
    Key("python_rate", "tasks per second of `task.enqueue()`, one after the other"),
    Key("python_async_rate", "the same of `await task.aenqueue()`"),
    Key("sql_rate", "of `SELECT pgtasks.enqueue(…)`"),
    Key("insert_rate", "of a plain INSERT"),
    Key("wal_bytes_per_task_single", "a plain INSERT in its own transaction"),
    Key("wal_bytes_per_task_bulk", "`enqueue_many`"),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)


def keys(rivals: Sequence[str]) -> Sequence[Key]:
    """Give the figures, those of the rivals at the end; theirs are measured as `python_async_rate` and bulks are."""
    return (
        *KEYS,
        *(
            key
            for name in rivals
            for key in (
                Key(f"bulk_to.{name}", f"our `enqueue_many` against {RIVALS[name].title}'s", 2),
                Key(f"single_to.{name}", "our `await task.aenqueue()` against its own", 2),
                Key(f"rival.{name}.bulk_rate", f"{RIVALS[name].title}: tasks per second in bulk"),
                Key(f"rival.{name}.single_rate", "one after the other"),
            )
        ),
    )


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds: bulk beside COPY, one by one, 16 producers in each state, then each rival."""
    bulk = Bulk(bench, plan.tasks)
    field = Field(bench, plan.rivals, outcome.missing)
    try:
        for number in range(1, plan.rounds + 1):
            figures = _round(bench, bulk, plan)
            figures |= field.each(partial(_rival, bench, plan.tasks, figures))
            outcome.rounds.append(figures)
            progress(
                f"enqueue {number}/{plan.rounds}: bulk {figures['bulk_rate']:,.0f} tasks/s, "
                f"to COPY {figures['bulk_to_copy']:.2f}; trigger ratios "
                + ", ".join(f"{figures[f'trigger_ratio_16_producers{state}']:.2f}{state}" for state in STATES)
                + f"; fsync {figures['fsync_ms']:.2f} ms"
            )
    finally:
        bulk.app.close()
    outcome.facts |= {
        "producers": flows.PRODUCERS,
        "tasks_of": {"burst": plan.tasks // BURST, "one by one": plan.tasks // SINGLE},
        "slices": SLICES,
    }


def _round(bench: Bench, bulk: Bulk, plan: Plan) -> Figures:
    fsyncs_ms = [machine.fsync_ms(bench.server.directory)]
    figures = _bulk(bench, bulk, plan.tasks)
    fsyncs_ms.append(machine.fsync_ms(bench.server.directory))
    figures |= _one_by_one(bench, bulk, max(1, plan.tasks // SINGLE))
    for state, (flow, _) in STATES.items():
        pair = flow(
            bench, Limit(tasks=plan.tasks // BURST) if state == "_idle" else Limit(seconds=plan.seconds), SLICES
        )
        figures |= {
            f"trigger_ratio_16_producers{state}": pair.ratio,
            f"rate_16_producers{state}": pair.with_trigger.rate,
        }
        if state == "_alone":
            figures |= _costs(pair)
        fsyncs_ms.append(machine.fsync_ms(bench.server.directory))
    return {**figures, "fsync_ms": statistics.median(fsyncs_ms)}


def _bulk(bench: Bench, bulk: Bulk, tasks: int) -> Figures:
    """Add the rows from Python, by COPY, by COPY, and from Python: what drifts hits both alike."""
    first = bulk.from_python()
    copies = [bulk.by_copy(), bulk.by_copy()]
    before = bench.counters()
    second = bulk.from_python()
    wal_bytes = bench.counters().wal_bytes - before.wal_bytes
    concurrent = bulk.from_async_python()
    ours_s, copy_s = first.seconds + second.seconds, sum(one.seconds for one in copies)
    return {
        "bulk_to_copy": copy_s / ours_s,
        "bulk_rate": 2 * tasks / ours_s,
        "bulk_async_rate": tasks / concurrent.seconds,
        "copy_rate": 2 * tasks / copy_s,
        "bulk_client_cpu_us_per_task": (first.client_cpu_s + second.client_cpu_s) / (2 * tasks) * 1e6,
        "bulk_backend_cpu_us_per_task": _backend_us([first, second], tasks),
        "copy_backend_cpu_us_per_task": _backend_us(copies, tasks),
        "wal_bytes_per_task_bulk": wal_bytes / tasks,
    }


def _backend_us(runs: list[Added], tasks: int) -> float | None:
    used_s = [run.backend_cpu_s for run in runs if run.backend_cpu_s is not None]
    return sum(used_s) / (tasks * len(runs)) * 1e6 if len(used_s) == len(runs) else None


def _one_by_one(bench: Bench, bulk: Bulk, tasks: int) -> Figures:
    """Add tasks one after the other, each in a transaction of its own, in four ways."""

    async def from_async_python() -> float:
        await bulk.one_async()
        began = time.perf_counter()
        for _ in range(tasks):
            await bulk.one_async()
        return time.perf_counter() - began

    bench.fill(0)
    bulk.one()
    began = time.perf_counter()
    for _ in range(tasks):
        bulk.one()
    python_s = time.perf_counter() - began
    async_s = asyncio.run(from_async_python())
    call = producers.run(bench, Limit(tasks), clients=1, statement=producers.CALL)
    insert = producers.run(bench, Limit(tasks), clients=1)
    added = bench.value("SELECT count(*) FROM pgtasks.tasks")
    assert added == 4 * tasks + 2, f"{added} tasks were added, {4 * tasks + 2} were meant to be"
    return {
        "python_rate": tasks / python_s,
        "python_async_rate": tasks / async_s,
        "sql_rate": call.rate,
        "insert_rate": insert.rate,
        "wal_bytes_per_task_single": insert.wal_bytes / insert.tasks,
    }


def _rival(bench: Bench, tasks: int, ours: Figures, rival: Rival) -> Figures:
    """Let a rival add as many tasks, in bulk and one by one."""
    try:
        bulk = run.enqueue(rival, bench, tasks, "bulk")
        single = run.enqueue(rival, bench, max(1, tasks // SINGLE), "single")
    except NotImplementedError as error:
        raise Unavailable("how it enqueues is not measured") from error
    progress(f"  {rival.name}: {bulk:,.0f} tasks/s in bulk, {single:,.0f} one by one")
    return {
        f"bulk_to.{rival.name}": (ours["bulk_rate"] or 0.0) / bulk,
        f"single_to.{rival.name}": (ours["python_async_rate"] or 0.0) / single,
        f"rival.{rival.name}.bulk_rate": bulk,
        f"rival.{rival.name}.single_rate": single,
    }


def _costs(pair: Pair) -> Figures:
    """Give what an insert costs, and how much of the CPU went to the producers instead."""
    on, off, _ = pair
    if on.backend_cpu_s is None or off.backend_cpu_s is None:
        return {}
    client_s = on.client_cpu_s + off.client_cpu_s
    return {
        "insert_cpu_us": on.backend_cpu_s / on.tasks * 1e6,
        "insert_cpu_us_without_trigger": off.backend_cpu_s / off.tasks * 1e6,
        "client_cpu_share": client_s / (client_s + on.backend_cpu_s + off.backend_cpu_s),
    }


SCENARIO = Scenario(
    name="enqueue",
    summary=(__doc__ or "").partition("\n")[0],
    keys=keys,
    plan=Plan(tasks=100_000, rounds=3, seconds=1),
    measure=measure,
    has_rivals=True,
    worker_command=fleet.worker("bench.app:app", concurrency=worker.CONCURRENCY),
)
