"""Producers: tasks that arrive one by one with gaps, or on a schedule that waits for nobody.

On a schedule (`open_loop`) the arrivals are a Poisson process, drawn beforehand. A producer inserts
whatever is due in one statement, as soon as its last transaction has ended; so when the database is
slow, the tasks that fell due meanwhile count from their own moments, and no stall is left out of the
figures (no coordinated omission).

Most programs enqueue beside other work of theirs. `in_open_transactions` is many of them: what one inserts
is committed after tasks that others inserted later.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import psycopg

from bench.database import Connection

PRODUCERS = 4
# A producer without a schedule inserts this many at once, when fewer than WINDOW have not started.
CLOSED_BATCH = 50
CLOSED_WINDOW = 2_000
# Programs that do something else between a task's INSERT and its COMMIT, up to twice as long as this.
OPEN_PRODUCERS, OPEN_S = 16, 0.02
# Between the start of the producers' threads and the schedule's.
_LEAD_S = 0.1
_WAIT_S = 0.002
_INSERT = (
    "INSERT INTO pgtasks.tasks (name, payload)"
    " SELECT 'stamp', jsonb_build_object('number', n) FROM unnest(%s::bigint[]) AS n"
)


class Sent(NamedTuple):
    """When a task was sent: before its INSERT, and after its COMMIT (seconds since 1970)."""

    called: float
    committed: float


def send(connection: Connection, numbers: Sequence[int]) -> Sent:
    """Insert tasks with these numbers in one transaction, on a connection that is not in autocommit mode."""
    called = time.time()
    connection.execute(_INSERT, (list(numbers),))
    connection.commit()
    return Sent(called, time.time())


def one_by_one(connection: Connection, numbers: Sequence[int], gap_s: Callable[[], float]) -> dict[int, Sent]:
    """Send tasks one by one, with a gap before each."""
    sent = {}
    for number in numbers:
        time.sleep(gap_s())
        sent[number] = send(connection, [number])
    return sent


@dataclass
class Arrivals:
    """What producers sent: when each task was meant to arrive, and when it was committed."""

    intended: dict[int, float] = field(default_factory=dict)
    committed: dict[int, float] = field(default_factory=dict)


def open_loop(dsn: str, rate: float, seconds: float, *, first: int, rng: random.Random) -> Arrivals:
    """Send tasks, numbered from `first` on, on a Poisson schedule of so many a second.

    It begins when all is drawn and every producer is connected: what that takes delays no task.
    """
    schedule = list(enumerate(_offsets_s(rate, seconds, rng), first))
    parts = [schedule[part::PRODUCERS] for part in range(PRODUCERS)]
    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(dsn, application_name="bench")) for _ in parts]
        pool = stack.enter_context(ThreadPoolExecutor(PRODUCERS))
        begin = time.time() + _LEAD_S
        found = list(pool.map(_keep_to, connections, parts, repeat(begin)))
    arrivals = Arrivals({number: begin + offset_s for number, offset_s in schedule})
    for committed in found:
        arrivals.committed |= committed
    return arrivals


def _offsets_s(rate: float, seconds: float, rng: random.Random) -> Iterator[float]:
    """Draw the moments of a schedule, from its beginning."""
    offset_s = rng.expovariate(rate)
    while offset_s < seconds:
        yield offset_s
        offset_s += rng.expovariate(rate)


def _keep_to(connection: Connection, schedule: Sequence[tuple[int, float]], begin: float) -> dict[int, float]:
    """Send tasks at their moments after `begin`; gives when each was committed."""
    committed: dict[int, float] = {}
    done = 0
    while done < len(schedule):
        now_s = time.time() - begin
        if schedule[done][1] > now_s:
            time.sleep(schedule[done][1] - now_s)
            continue
        due = done
        while due < len(schedule) and schedule[due][1] <= now_s:
            due += 1
        numbers = [number for number, _ in schedule[done:due]]
        committed |= dict.fromkeys(numbers, send(connection, numbers).committed)
        done = due
    return committed


def in_open_transactions(dsn: str, seconds: float, *, first: int, rng: random.Random) -> dict[int, float]:
    """Send tasks, numbered from `first` on, in transactions that stay open; gives when each was committed."""
    numbers = itertools.count(first)

    def produce(connection: Connection, gaps: random.Random, ends_at: float) -> dict[int, float]:
        committed = {}
        while time.monotonic() < ends_at:
            number = next(numbers)
            connection.execute(_INSERT, ([number],))
            time.sleep(gaps.uniform(0, 2 * OPEN_S))
            connection.commit()
            committed[number] = time.time()
        return committed

    with ExitStack() as stack:
        connections = [
            stack.enter_context(psycopg.connect(dsn, application_name="bench")) for _ in range(OPEN_PRODUCERS)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(OPEN_PRODUCERS))
        gaps = [random.Random(rng.random()) for _ in connections]
        found = pool.map(produce, connections, gaps, repeat(time.monotonic() + seconds))
        return {number: at for part in found for number, at in part.items()}


def closed_loop(dsn: str, seconds: float, *, first: int, started: Callable[[], int]) -> tuple[int, float]:
    """Keep a worker busy for some seconds, with a bounded backlog; gives how many tasks, and its rate.

    `started` counts the handlers that have started since the first of these tasks. The rate is that
    of the last three quarters of the time.
    """
    counter, lock, ends_at = 0, threading.Lock(), time.monotonic() + seconds

    def take() -> range:
        nonlocal counter
        with lock:
            if counter - started() > CLOSED_WINDOW:
                return range(0)
            counter += CLOSED_BATCH
            return range(first + counter - CLOSED_BATCH, first + counter)

    def produce(_: int) -> None:
        with psycopg.connect(dsn, application_name="bench") as connection:
            while time.monotonic() < ends_at:
                numbers = take()
                if numbers:
                    send(connection, numbers)
                else:
                    time.sleep(_WAIT_S)

    with ThreadPoolExecutor(PRODUCERS) as pool:
        running = pool.map(produce, range(PRODUCERS))
        time.sleep(seconds / 4)
        before, at = started(), time.monotonic()
        time.sleep(max(0.0, ends_at - time.monotonic()))
        rate = (started() - before) / (time.monotonic() - at)
        list(running)
    return counter, rate
