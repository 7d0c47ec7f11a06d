"""Sixteen producers at once, with the trigger of `pgtasks.tasks` on and off in turns."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg

from bench import fleet, producers, worker
from bench.cpu import OURS
from bench.database import Bench
from bench.producers import Inserted, Limit

PRODUCERS = 16
SETTLED_S, DONE_S = 30.0, 120.0
# A sleeper that has nothing to wake it looks by itself every few seconds; this does it instead.
_RING_EVERY_S = 0.02


class Pair(NamedTuple):
    """The same inserts with the trigger and without, summed over slices that took turns.

    `ratio` is the rate with it against the rate without: the median over neighbouring slices, so that
    a disk that stalls for one of them does not decide.
    """

    with_trigger: Inserted
    without: Inserted
    ratio: float


def alone(bench: Bench, limit: Limit, slices: int) -> Pair:
    """No worker runs: nobody sleeps, and nothing but inserts uses the CPU."""
    return _pair(bench, slices, lambda _: producers.run(bench, limit, clients=PRODUCERS), bench.fill)


def busy(bench: Bench, limit: Limit, slices: int) -> Pair:
    """A worker runs these tasks as they come, and is awake before they do."""

    def insert(_is_on: bool) -> Inserted:  # noqa: FBT001 - what each slice is told
        with _ringing(bench, is_needed=True):
            # A task that is found keeps it awake until the producers have connected.
            bench.connection.execute("SELECT pgtasks.enqueue('noop')")
            awake.until(lambda: not _is_asleep(bench), SETTLED_S, "the worker wakes up")
            done = producers.run(bench, limit, clients=PRODUCERS)
        _all_done(bench, awake)
        return done

    bench.fill(0)
    with fleet.Fleet(bench, fleet.worker("bench.app:app", concurrency=worker.CONCURRENCY)) as awake:
        awake.ready(1)
        pair = _pair(bench, slices, insert)
        awake.stop()
    return pair


def idle(bench: Bench, limit: Limit, slices: int) -> Pair:
    """Two workers sleep when a burst of tasks comes, and are woken by it; each task is run."""

    def insert(is_on: bool) -> Inserted:  # noqa: FBT001 - what each slice is told
        sleepers.until(lambda: _is_asleep(bench), SETTLED_S, "the workers fall asleep")
        with _ringing(bench, is_needed=not is_on):
            done = producers.run(bench, limit, clients=PRODUCERS)
            _all_done(bench, sleepers)
        return done

    bench.fill(0)
    command = fleet.worker("bench.app:app", concurrency=worker.CONCURRENCY)
    with fleet.Fleet(bench, command, command) as sleepers:
        sleepers.ready(2)
        pair = _pair(bench, slices, insert)
        sleepers.stop()
    return pair


def strangers(bench: Bench, limit: Limit, slices: int) -> Pair:
    """A worker sleeps that can run none of these tasks: it stays asleep, or falls asleep again at once."""

    def insert(_is_on: bool) -> Inserted:  # noqa: FBT001 - what each slice is told
        bench.connection.execute("TRUNCATE pgtasks.tasks")
        sleeper.until(lambda: _is_asleep(bench), SETTLED_S, "the worker falls asleep")
        return producers.run(bench, limit, clients=PRODUCERS)

    bench.fill(0)
    with fleet.Fleet(bench, fleet.worker("bench.apps.stranger:app", concurrency=worker.CONCURRENCY)) as sleeper:
        sleeper.ready(1)
        pair = _pair(bench, slices, insert)
        sleeper.stop()
    return pair


def _pair(
    bench: Bench,
    slices: int,
    insert: Callable[[bool], Inserted],
    empty: Callable[[int], None] | None = None,
) -> Pair:
    """Run slices with the trigger and without in turns; who comes first changes each time."""
    sums: dict[bool, list[Inserted]] = {True: [], False: []}
    try:
        for number in range(slices):
            for is_on in (True, False) if number % 2 == 0 else (False, True):
                if empty is not None:
                    empty(0)
                _switch(bench, is_on=is_on)
                sums[is_on].append(insert(is_on))
    finally:
        _switch(bench, is_on=True)
    ratios = [on.rate / off.rate for on, off in zip(sums[True], sums[False], strict=True)]
    return Pair(_sum(sums[True]), _sum(sums[False]), statistics.median(ratios))


def _switch(bench: Bench, *, is_on: bool) -> None:
    bench.connection.execute(
        f"ALTER TABLE pgtasks.tasks {'ENABLE' if is_on else 'DISABLE'} TRIGGER tasks_inserted".encode()
    )


def _sum(slices: list[Inserted]) -> Inserted:
    backend_s = [one.backend_cpu_s for one in slices if one.backend_cpu_s is not None]
    return Inserted(
        tasks=sum(one.tasks for one in slices),
        seconds=sum(one.seconds for one in slices),
        client_cpu_s=sum(one.client_cpu_s for one in slices),
        backend_cpu_s=sum(backend_s) if len(backend_s) == len(slices) else None,
        wal_bytes=sum(one.wal_bytes for one in slices),
    )


def _is_asleep(bench: Bench) -> bool:
    """Tell whether somebody holds a bell (pgtasks/engine/bell.py)."""
    found: bool = bench.value(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted)"
    )
    return found


def _all_done(bench: Bench, workers: fleet.Fleet) -> None:
    """Wait until every task is in history; one whose wake-up was lost would not get there in time."""
    workers.until(
        lambda: not bench.value("SELECT EXISTS (SELECT FROM pgtasks.tasks)"),
        DONE_S,
        "every task that was added is done",
    )


@contextmanager
def _ringing(bench: Bench, *, is_needed: bool) -> Iterator[None]:
    """Ring in the trigger's place while it is off, so that the workers are as busy as with it."""
    stop = threading.Event()

    def ring() -> None:
        with psycopg.connect(bench.dsn, autocommit=True, application_name=OURS) as connection:
            while not stop.wait(_RING_EVERY_S):
                connection.execute("SELECT pg_notify('pgtasks', 'default')")

    thread = threading.Thread(target=ring, name="ringer", daemon=True)
    if is_needed:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if is_needed:
            thread.join()
