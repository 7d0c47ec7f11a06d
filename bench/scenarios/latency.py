"""How long a task waits for its handler: with an idle worker, beside bare LISTEN/NOTIFY, and under load.

Idle. One task at a time, with gaps in which the worker falls asleep; in turns, in blocks, the same
tasks for a bare consumer (`bench/doorbell.py`), which is the floor. Both kinds of task are inserted
in the same way by this process, each in a database of its own. Counted from the moment at which
COMMIT has returned: the time that the disk takes to make the task durable belongs to neither, and
would only make the two more alike. `from_call_*` counts from before the INSERT is sent instead,
which is how rivals are measured.

Under load. Tasks arrive on a schedule that waits for nobody (`bench/arrivals.py`), and count from
the moment at which they were meant to arrive, so the wait for the producer's INSERT and COMMIT is
part of it; `pickup_*` counts from their COMMIT. The capacity is what producers, server and worker
manage together on this machine, with a bounded backlog, measured right before. `kept_up_*` tells whether
the worker kept up with its share: the latencies of a load that it did not are those of a growing backlog.

In open transactions. Many programs insert a task each and commit it a moment later, after tasks that
others inserted meanwhile. Counted from the COMMIT.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg

from bench import arrivals, fleet, machine
from bench.arrivals import Sent
from bench.cpu import OURS
from bench.database import Bench, Connection
from bench.fleet import Fleet
from bench.report import Budget, Figures, Key, progress
from bench.rivals import RIVALS, run
from bench.rivals.beside import Field
from bench.rivals.rival import Rival, Unavailable
from bench.scenario import Outcome, Plan, Scenario
from bench.stamps import FILE, Stamps
from pgtasks import schema

CONCURRENCY = 500
# Between two tasks. The worker falls asleep 50 ms after the last one.
GAP_S = (0.07, 0.11)
BLOCK = 50
WARM_UP = 30
SHARES = (20, 50, 80)
READY_S, END_S = 60.0, 30.0
FLOOR = "floor"
_MS = 1000.0
_IN_OPEN_TRANSACTIONS = (
    f"of tasks that {arrivals.OPEN_PRODUCERS} programs insert and commit up to {2 * arrivals.OPEN_S * _MS:g} ms later"
)
_APP = "bench.apps.stamps:app"


def keys(rivals: Sequence[str]) -> Sequence[Key]:
    """Give the figures, those of the rivals at the end."""
    under_load = [
        Key(f"{kind}{point}_ms_at_{share}", f"{meaning}, at {share} % of the capacity", 2)
        for share in SHARES
        for kind, meaning in (("", "from the moment it was due"), ("pickup_", "of that, from its COMMIT"))
        for point in ("p50", "p99")
    ]
    in_time = [
        Key(f"kept_up_at_{share}", f"share that had started when the last one was due, at {share} % of the capacity", 3)
        for share in SHARES
    ]
    of_rivals = [
        Key(f"rival.{name}.{point}_ms", f"{RIVALS[name].title}: idle, from the call that enqueues", 2)
        for name in rivals
        for point in ("p50", "p99")
    ]
    return (
        Key("p50_to_floor", "the median against the floor's, round by round", 2, Budget(most=1.5)),
        Key("p99_to_floor", "the 99th percentile against the floor's, round by round", 2, Budget(most=2)),
        Key("p50_ms", "idle worker: from COMMIT to the start of the handler, median", 2),
        Key("p99_ms", "the same, 99th percentile", 2),
        Key("floor_p50_ms", "bare LISTEN/NOTIFY and one claim, median", 2),
        Key("floor_p99_ms", "the same, 99th percentile", 2),
        Key("from_call_p50_ms", "idle worker, from before the INSERT was sent, median", 2),
        Key("from_call_p99_ms", "the same, 99th percentile", 2),
        Key("capacity", "tasks per second of producers, server and worker together"),
        *under_load,
        *in_time,
        Key("open_transactions_p50_ms", f"from COMMIT to start, {_IN_OPEN_TRANSACTIONS}, median", 2),
        Key("open_transactions_p99_ms", "the same, 99th percentile", 2),
        *of_rivals,
        Key("fsync_ms", "8 KiB written and synced, median", 2),
    )


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds: idle in turns with the floor, then under load, then each rival."""
    outcome.facts |= {"tasks_each_idle": plan.tasks, "gap_s": GAP_S, "counted_from": "COMMIT has returned"}
    field, rng = Field(bench, plan.rivals, outcome.missing), random.Random()
    floor_dsn = _floor_database(bench)
    for number in range(1, plan.rounds + 1):
        figures: Figures = {"fsync_ms": machine.fsync_ms(bench.server.directory)}
        figures |= _idle(bench, floor_dsn, plan.tasks, rng)
        figures |= _under_load(bench, plan.seconds, rng)
        progress(
            f"latency {number}/{plan.rounds}: idle p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f}; floor "
            f"{figures['floor_p50_ms']:.2f} and {figures['floor_p99_ms']:.2f}; capacity {figures['capacity']:,.0f}/s, "
            + ", ".join(f"at {share} % p99 {figures[f'p99_ms_at_{share}']:.1f} ms" for share in SHARES)
        )
        figures |= field.each(lambda rival: of_rival(bench, rival, plan.tasks))
        outcome.rounds.append(figures)


def _floor_database(bench: Bench) -> str:
    """Make a database for the floor: listeners of one database are all woken by each notification."""
    with psycopg.connect(bench.admin_dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {FLOOR}")
    dsn = bench.server.dsn_for(FLOOR)
    schema.migrate(dsn)
    return dsn


@dataclass
class Consumer:
    """A process that takes tasks, the stamps it writes, and a producer's connection to its database."""

    process: Fleet
    stamps: Stamps
    connection: Connection
    sent: int = 0

    def numbers(self, count: int) -> range:
        """Give the next so many numbers for tasks."""
        self.sent += count
        return range(self.sent - count, self.sent)

    def warm_up(self) -> None:
        """Send tasks until some have been run: connections are up and statements prepared."""

        def is_warm() -> bool:
            arrivals.send(self.connection, self.numbers(1))
            return self.stamps.count() >= WARM_UP

        self.process.until(is_warm, READY_S, "it has run its first tasks")
        self.finished()

    def finished(self, limit_s: float = END_S) -> dict[int, float]:
        """Wait until all that was sent has started; gives when, by number."""
        self.process.until(lambda: self.stamps.count() >= self.sent, limit_s, f"all {self.sent} tasks have started")
        started = self.stamps.read()
        assert started.keys() == set(range(self.sent)), "other tasks ran than were sent: the run is not valid"
        return started


@contextmanager
def _worker(bench: Bench) -> Iterator[Consumer]:
    bench.fill(0)
    with Stamps() as stamps, psycopg.connect(bench.dsn, application_name=OURS) as connection:
        command = fleet.worker(_APP, concurrency=CONCURRENCY)
        with Fleet(bench, command, env={FILE: str(stamps.path)}) as process:
            consumer = Consumer(process, stamps, connection)
            consumer.warm_up()
            yield consumer
            process.stop()


@contextmanager
def _doorbell(bench: Bench, dsn: str) -> Iterator[Consumer]:
    with Stamps() as stamps, psycopg.connect(dsn, application_name=OURS) as connection:
        with Fleet(bench, fleet.module("bench.doorbell", dsn, str(stamps.path))) as process:
            consumer = Consumer(process, stamps, connection)
            consumer.warm_up()
            yield consumer
        connection.execute("TRUNCATE pgtasks.tasks, pgtasks.leases, pgtasks.history")


def _idle(bench: Bench, floor_dsn: str, tasks: int, rng: random.Random) -> Figures:
    """Send as many tasks to the worker and to the floor, in turns of a block each."""
    with ExitStack() as stack:
        sides = {"": stack.enter_context(_worker(bench)), "floor_": stack.enter_context(_doorbell(bench, floor_dsn))}
        sent: dict[str, dict[int, Sent]] = {side: {} for side in sides}
        for block in range(0, tasks, BLOCK):
            for side in sorted(sides, reverse=bool(block // BLOCK % 2)):
                numbers = sides[side].numbers(min(BLOCK, tasks - block))
                sent[side] |= arrivals.one_by_one(sides[side].connection, numbers, lambda: rng.uniform(*GAP_S))
        started = {side: consumer.finished() for side, consumer in sides.items()}
    figures: Figures = {}
    for side in sides:
        waits = [started[side][number] - one.committed for number, one in sent[side].items()]
        figures |= {f"{side}p50_ms": _percentile(waits, 50), f"{side}p99_ms": _percentile(waits, 99)}
    ours = started[""]
    calls = [ours[number] - one.called for number, one in sent[""].items()]
    return {
        "p50_to_floor": _ratio(figures, "p50_ms"),
        "p99_to_floor": _ratio(figures, "p99_ms"),
        **figures,
        "from_call_p50_ms": _percentile(calls, 50),
        "from_call_p99_ms": _percentile(calls, 99),
    }


def _ratio(figures: Figures, name: str) -> float | None:
    ours, floor = figures[name], figures[f"floor_{name}"]
    return ours / floor if ours is not None and floor else None


def _under_load(bench: Bench, seconds: float, rng: random.Random) -> Figures:
    """Measure the capacity, then the latencies at shares of it."""
    with _worker(bench) as consumer:
        first = consumer.sent
        sent, capacity = arrivals.closed_loop(
            bench.dsn, seconds, first=first, started=lambda: consumer.stamps.count() - first
        )
        consumer.sent += sent
        consumer.finished()
        figures: Figures = {"capacity": capacity}
        for share in SHARES:
            figures |= _at_share(bench, consumer, share, capacity, seconds, rng)
        return figures | _in_open_transactions(bench, consumer, seconds, rng)


def _in_open_transactions(bench: Bench, consumer: Consumer, seconds: float, rng: random.Random) -> Figures:
    committed = arrivals.in_open_transactions(bench.dsn, seconds, first=consumer.sent, rng=rng)
    consumer.sent += len(committed)
    started = consumer.finished()
    waits = [started[number] - at for number, at in committed.items()]
    return {f"open_transactions_p{point}_ms": _percentile(waits, point) for point in (50, 99)}


def _at_share(
    bench: Bench, consumer: Consumer, share: int, capacity: float, seconds: float, rng: random.Random
) -> Figures:
    first = consumer.sent
    found = arrivals.open_loop(bench.dsn, capacity * share / 100, seconds, first=first, rng=rng)
    consumer.sent += len(found.intended)
    # What it did not keep up with may take as long again.
    started = consumer.finished(END_S + seconds)
    waits = {
        "": [started[number] - due for number, due in found.intended.items()],
        "pickup_": [started[number] - committed for number, committed in found.committed.items()],
    }
    figures: Figures = {
        f"{kind}p{point}_ms_at_{share}": _percentile(times, point)
        for kind, times in waits.items()
        for point in (50, 99)
    }
    return {**figures, f"kept_up_at_{share}": kept_up(found.intended, started)}


def kept_up(intended: Mapping[int, float], started: Mapping[int, float]) -> float:
    """Say which share of what was due had started when the last of it was due."""
    last = max(intended.values())
    return sum(started[number] <= last for number in intended) / len(intended)


def of_rival(bench: Bench, rival: Rival, tasks: int) -> Figures:
    """Let a rival measure itself, as an idle worker that enqueues one task at a time; raises Unavailable."""
    try:
        waits = run.latencies_s(rival, bench, tasks, statistics.fmean(GAP_S))
    except NotImplementedError:
        raise Unavailable("its latency is not measured") from None
    assert len(waits) == tasks, f"{len(waits)} of {tasks} tasks were measured"
    progress(f"  {rival.name}: p50 {_percentile(waits, 50):.2f} ms, p99 {_percentile(waits, 99):.2f}")
    return {f"rival.{rival.name}.p{point}_ms": _percentile(waits, point) for point in (50, 99)}


def _percentile(waits_s: Iterable[float], point: int) -> float:
    """Give a percentile in milliseconds: the smallest wait that so many per cent do not exceed."""
    waits = sorted(waits_s)
    return waits[max(0, math.ceil(len(waits) * point / 100) - 1)] * _MS


SCENARIO = Scenario(
    name="latency",
    summary=(__doc__ or "").partition("\n")[0],
    keys=keys,
    plan=Plan(tasks=400, rounds=3, seconds=4),
    measure=measure,
    has_rivals=True,
    worker_command=fleet.worker(_APP, concurrency=CONCURRENCY),
)
