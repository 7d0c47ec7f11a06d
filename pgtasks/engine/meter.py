"""What a worker counts for its metrics: plain numbers, added to where things happen.

A worker without a metrics port has no meter and counts nothing. The frequent things are counted
in batches where the engine has batches; the rare ones are made of its events.

Names and queues become labels of time series, which cost memory for as long as somebody keeps
them. So there are at most LABELS_MAX of each kind, first come, first served; what is beyond is
counted as "other". Only names of the app's own handlers get here, never what a producer wrote.

Changed on the engine's loop, but for the errors of a part with its own thread, whose entries
nobody else changes; read from any thread.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from pgtasks.engine.runners import Finished
from pgtasks.model import Claimed
from pgtasks.outcome import Cancelled, Completed, Dead, Lost, Released, RetryIn, Snoozed

LABELS_MAX = 200
OTHER = "other"
OUTCOMES: dict[type, str] = {
    Completed: "completed",
    RetryIn: "retried",
    Dead: "dead",
    Cancelled: "cancelled",
    Snoozed: "snoozed",
    Released: "released",
    Lost: "lost",
}
# Seconds. A task may take a millisecond or an hour; what waits for minutes waits for a person.
DURATION_BOUNDS_S = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
WAIT_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)
# A claim takes a millisecond or two, and twice that is worth to be seen.
CLAIM_BOUNDS_S = (0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.012, 0.016, 0.024, 0.05, 0.1, 0.5, 2.0, 10.0)
LATENESS_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0)


class Buckets:
    """A histogram: how many values were at most each bound, and beyond all; and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value; one below zero, as a clock that was read earlier gives, is none."""
        if value > 0.0:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.total += value
        else:
            self.counts[0] += 1


class Attempts:
    """The ended attempts of one task name."""

    __slots__ = ("durations", "outcomes")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.durations = Buckets(DURATION_BOUNDS_S)


class Claims:
    """The claimed tasks of one queue."""

    __slots__ = ("tasks", "waits")

    def __init__(self) -> None:
        self.tasks = 0
        self.waits = Buckets(WAIT_BOUNDS_S)


class Meter:
    """All that one worker counts."""

    def __init__(self) -> None:
        self.claims: dict[str, Claims] = {}
        # How long the statements took that claim, also those that found nothing.
        self.claim_times = Buckets(CLAIM_BOUNDS_S)
        self.attempts: dict[str, Attempts] = {}
        self.leases_lost = 0
        self.database_errors: dict[str, int] = {}
        self.fires = {"fired": 0, "missed": 0, "skipped": 0}
        self.lateness = Buckets(LATENESS_BOUNDS_S)

    def queue(self, name: str) -> Claims:
        """Give the counts of a queue."""
        found = self.claims.get(name)
        if found is None:
            label = name if len(self.claims) < LABELS_MAX else OTHER
            found = self.claims.setdefault(label, Claims())
        return found

    def task(self, name: str) -> Attempts:
        """Give the counts of a task name; the empty one is that of a task without a handler."""
        found = self.attempts.get(name)
        if found is None:
            label = name if name and len(self.attempts) < LABELS_MAX else OTHER
            found = self.attempts.setdefault(label, Attempts())
        return found

    def count_claimed(self, queue: str, tasks: Sequence[Claimed], now: datetime | None) -> None:
        """Count a claimed batch; how long they waited only when the database's time is known."""
        claims = self.queue(queue)
        claims.tasks += len(tasks)
        if now is not None:
            add = claims.waits.add
            for task in tasks:
                add((now - task.run_at).total_seconds())

    def counting(self, then: Callable[[Finished], None]) -> Callable[[Finished], None]:
        """Give a function that counts ended attempts and hands them on."""

        def count(finished: Finished) -> None:
            self.count_finished(finished)
            then(finished)

        return count

    def count_finished(self, finished: Finished) -> None:
        """Count ended attempts."""
        now = time.monotonic()
        for attempt, outcome in finished:
            counts = self.task(attempt.handler.name)
            counts.outcomes[type(outcome)] += 1
            counts.durations.add(now - attempt.started)

    def hear(self, event: str, fields: Mapping[str, object]) -> None:
        """Count what an event tells; made for ``events.subscribe``."""
        match event:
            case "round failed":
                if fields["database"]:
                    part = str(fields["part"])
                    self.database_errors[part] = self.database_errors.get(part, 0) + 1
            case "lease lost" | "lease lost, result refused":
                self.leases_lost += _number(fields["count"])
            case "schedules fired":
                for outcome, field in (("fired", "fired"), ("missed", "missed"), ("skipped", "skipped_overlap")):
                    self.fires[outcome] += _number(fields[field])
                if fields["fired"]:
                    late_s = fields["late_s"]
                    self.lateness.add(late_s if isinstance(late_s, float) else 0.0)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
