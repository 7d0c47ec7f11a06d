"""Producers: tasks that arrive one by one with gaps, or on a schedule that waits for nobody.

On a schedule (`open_loop`) the arrivals are a Poisson process, drawn beforehand. A producer inserts
whatever is due in one statement, as soon as its last transaction has ended; so when the database is
slow, the tasks that fell due meanwhile count from their own moments, and no stall is left out of the
figures (no coordinated omission).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import psycopg

from bench.database import Connection

PRODUCERS = 4
# A producer without a schedule inserts this many at once, when fewer than WINDOW have not started.
CLOSED_BATCH = 50
CLOSED_WINDOW = 2_000
_WAIT_S = 0.002
_INSERT = (
    "INSERT INTO pgtasks.tasks (name, payload)"
    " SELECT 'stamp', jsonb_build_object('number', n) FROM unnest(%s::bigint[]) AS n"
)


class Sent(NamedTuple):
    """When a task was sent: before its INSERT, before and after its COMMIT (seconds since 1970)."""

    called: float
    committing: float
    committed: float


def send(connection: Connection, numbers: Sequence[int]) -> Sent:
    """Insert tasks with these numbers in one transaction, on a connection that is not in autocommit mode."""
    called = time.time()
    connection.execute(_INSERT, (list(numbers),))
    committing = time.time()
    connection.commit()
    return Sent(called, committing, time.time())


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
    """Send tasks, numbered from `first` on, on a Poisson schedule of so many a second."""
    begin, moments = time.time() + 0.1, []
    moment = begin + rng.expovariate(rate)
    while moment < begin + seconds:
        moments.append(moment)
        moment += rng.expovariate(rate)
    schedule = [(first + position, moment) for position, moment in enumerate(moments)]
    arrivals = Arrivals(dict(schedule))
    with ThreadPoolExecutor(PRODUCERS) as pool:
        for committed in pool.map(lambda part: _keep_to(dsn, schedule[part::PRODUCERS]), range(PRODUCERS)):
            arrivals.committed |= committed
    return arrivals


def _keep_to(dsn: str, schedule: Sequence[tuple[int, float]]) -> dict[int, float]:
    committed: dict[int, float] = {}
    with psycopg.connect(dsn, application_name="bench") as connection:
        done = 0
        while done < len(schedule):
            now = time.time()
            if schedule[done][1] > now:
                time.sleep(schedule[done][1] - now)
                continue
            due = done
            while due < len(schedule) and schedule[due][1] <= now:
                due += 1
            numbers = [number for number, _ in schedule[done:due]]
            committed |= dict.fromkeys(numbers, send(connection, numbers).committed)
            done = due
    return committed


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
