"""Facts about the whole database for metrics: asked for all the time, so the cost is bounded whatever the size.

One statement reads them all, so they are of one moment. A queue's live tasks are exact while the
table is small enough to be read whole (PAGES), or the queue has so few tasks that counting them is
cheap; else they are estimated from a sample of pages, but for the running ones, which are counted
through the leases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pgtasks.store.overview import OVERDUE_S
from pgtasks.store.session import Statement, SyncConnection, fetch_all
from pgtasks.store.sql_files import sql

QUEUES_MAX = 200
# Of those beyond, up to this many in all, it is known for how long they wait: some probes each.
QUEUES_LOOKED_AT_MAX = 1000
PAGES = 64
# Rows that are counted one by one, for all queues together.
COUNTED_MAX = 5000
RUNNING_MAX = 2000
DEAD_MAX = 5000
LATELY_DEAD_MAX = 1000
LATELY_S = 3600.0
SCHEDULES_MAX = 2000
STATUSES = ("scheduled", "queued", "running", "retrying")


class FactRow(NamedTuple):
    """A queue, None when there is none, and what is so of the whole database."""

    queue: str | None
    oldest_waiting_s: float
    paused: bool
    workers: int
    scheduled: int
    queued: int
    running: int
    retrying: int
    dead_letters: int
    dead_letters_last_hour: int
    oldest_transaction_s: float
    schedules_overdue: int
    schedules_overdue_s: float


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue; ``tasks`` by status, ``oldest_waiting_s`` 0 when nothing waits."""

    tasks: Mapping[str, int]
    oldest_waiting_s: float = 0.0
    paused: bool = False
    workers: int = 0
    dead_letters: int = 0
    dead_letters_last_hour: int = 0


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
    rows = fetch_all(connection, facts())
    return Facts(
        queues={row.queue: _of_queue(row) for row in rows if row.queue is not None},
        oldest_transaction_s=rows[0].oldest_transaction_s,
        schedules_overdue=rows[0].schedules_overdue,
        schedules_overdue_s=rows[0].schedules_overdue_s,
    )


def facts() -> Statement[FactRow]:
    """Read what metrics tell of the database: at least one row."""
    params = {
        "pages": PAGES,
        "queues": QUEUES_LOOKED_AT_MAX,
        "counted_queues": QUEUES_MAX,
        "tasks": COUNTED_MAX,
        "running": RUNNING_MAX,
        "dead": DEAD_MAX,
        "lately_dead": LATELY_DEAD_MAX,
        "lately_s": LATELY_S,
        "schedules": SCHEDULES_MAX,
        "overdue_s": OVERDUE_S,
    }
    return Statement(sql("database_read"), params, FactRow)


def _of_queue(row: FactRow) -> QueueFacts:
    return QueueFacts(
        tasks={status: getattr(row, status) for status in STATUSES},
        oldest_waiting_s=row.oldest_waiting_s,
        paused=row.paused,
        workers=row.workers,
        dead_letters=row.dead_letters,
        dead_letters_last_hour=row.dead_letters_last_hour,
    )
