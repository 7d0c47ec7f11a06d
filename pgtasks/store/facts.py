"""Facts about the whole database for metrics: asked for all the time, so the cost is bounded whatever the size.

A queue's live tasks are exact while the table is small enough to be read whole (PAGES), or the
queue has so few tasks that counting them is cheap; else they are estimated from a sample of
pages, but for the running ones, which are counted through the leases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pgtasks.store import reading, schedule_reading, statements
from pgtasks.store.overview import OVERDUE_S, estimates_of, is_whole
from pgtasks.store.session import SyncConnection, fetch_all

QUEUES_MAX = 200
# Of those beyond, up to this many in all, it is known for how long they wait: one probe each.
QUEUES_LOOKED_AT_MAX = 1000
PAGES = 64
# Rows that are counted one by one, for all queues together.
COUNTED_MAX = 5000
RUNNING_MAX = 2000
DEAD_MAX = 5000
STATUSES = ("scheduled", "queued", "running", "retrying")


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue; ``tasks`` by status, ``oldest_waiting_s`` 0 when nothing waits."""

    tasks: Mapping[str, int]
    oldest_waiting_s: float = 0.0
    paused: bool = False
    workers: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is so at one moment."""

    queues: Mapping[str, QueueFacts]
    oldest_transaction_s: float
    schedules_overdue: int
    schedules_overdue_s: float

    @property
    def oldest_waiting_s(self) -> float:
        """Give for how long the oldest waiting task has been due, in whichever queue that is not paused."""
        return max((queue.oldest_waiting_s for queue in self.queues.values() if not queue.paused), default=0.0)


def read_facts(connection: SyncConnection) -> Facts:
    """Read the facts; raises DatabaseError."""
    now = fetch_all(connection, statements.clock())[0]
    rows = fetch_all(connection, reading.queues(limit=QUEUES_LOOKED_AT_MAX))
    names = [row.queue for row in rows[:QUEUES_MAX]]
    tasks = _tasks(connection, names)
    dead = _dead(connection, names)
    queues = {
        row.queue: QueueFacts(
            tasks=tasks.pop(row.queue, dict.fromkeys(STATUSES, 0)),
            oldest_waiting_s=_age(now, row.oldest_waiting_since),
            paused=row.paused_at is not None,
            workers=row.workers,
            dead_letters=dead.get(row.queue, 0),
        )
        for row in rows
    }
    transactions = fetch_all(connection, reading.old_transactions(older_than_s=0.0, limit=1))
    schedules = fetch_all(connection, schedule_reading.count(overdue_s=OVERDUE_S))[0]
    return Facts(
        # What is left are queues beyond the limit, of which the sample has seen some.
        queues=queues | {name: QueueFacts(tasks=counts) for name, counts in tasks.items()},
        oldest_transaction_s=max((row.age_s for row in transactions), default=0.0),
        schedules_overdue=schedules.overdue,
        schedules_overdue_s=_age(now, schedules.next_fire),
    )


def _age(now: datetime, since: datetime | None) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _share(rows: int, names: Sequence[str]) -> int:
    return max(10, rows // max(1, len(names)))


def _tasks(connection: SyncConnection, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Count the live tasks of these queues by status, and of others as far as they were met."""
    sample = fetch_all(connection, reading.sample(pages=PAGES))
    found = estimates_of(sample)
    if is_whole(sample):
        return found
    limit = _share(COUNTED_MAX, names)
    counted = fetch_all(connection, reading.count(names, limit=limit))
    running = {row.queue: row.running for row in fetch_all(connection, reading.running(limit=RUNNING_MAX))}
    for row in counted:
        exact = {status: int(getattr(row, status)) for status in STATUSES}
        estimate = found.get(row.queue, {})
        if row.total < limit:
            found[row.queue] = exact
        else:
            least = {status: max(exact[status], estimate.get(status, 0)) for status in STATUSES}
            found[row.queue] = least | {"running": max(exact["running"], running.get(row.queue, 0))}
    return found


def _dead(connection: SyncConnection, names: Sequence[str]) -> dict[str, int]:
    """Count dead letters by queue; those with too many to count share what the statistics say is left."""
    limit = _share(DEAD_MAX, names)
    rows = fetch_all(connection, reading.dead(names, limit=limit))
    large = sum(row.dead >= limit for row in rows)
    counted = sum(row.dead for row in rows if row.dead < limit)
    return {
        row.queue: row.dead if row.dead < limit else max(row.dead, (row.table_rows - counted) // large) for row in rows
    }
