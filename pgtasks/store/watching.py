"""One look at what goes on now, for a view that looks again every second or two.

It reads less than an overview (``overview.py``): counts from a smaller budget, running tasks
through their leases, and of what ended only that of the time since the last look. Nothing of it
grows with the tables, and no payload is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from pgtasks.store import reading
from pgtasks.store.overview import Budget, QueueCounts, read_counts
from pgtasks.store.session import Statement, SyncConnection, fetch_all
from pgtasks.store.sql_files import sql

LOOK = Budget(pages=512, queue_rows=2000, rows=3000, dead_rows=2000)
QUEUES_MAX = 200
WORKERS_MAX = 100
RUNNING_MAX = 200
RUNNING_SCAN_MAX = 2000
FAILURES_MAX = 100
FAILURES_SCAN_MAX = 1000
ENDED_ROWS_MAX = 20_000
# The first look tells the rate of this time, and the failures of the last minute; no look reaches back further.
FIRST = timedelta(seconds=10)
BACK_MAX = timedelta(minutes=1)
# What ended is seen when its transaction has: a window ends so long before now, and failures,
# which can be told apart, are looked for over a longer time once more.
COMMITTED = timedelta(seconds=0.5)
OVERLAP = timedelta(seconds=3)


class RunningTask(NamedTuple):
    """A task that runs; the worker's name is None when its row is gone."""

    id: int
    queue: str
    name: str
    attempt: int
    claimed_at: datetime
    worker_id: UUID
    worker: str | None
    is_cancelled: bool


class EndedRow(NamedTuple):
    """How many tasks or attempts of a queue ended in a window, as far as was counted."""

    queue: str
    ended: int
    first_at: datetime
    last_at: datetime


class FailureRow(NamedTuple):
    """An attempt that did not succeed, with the beginning of its error."""

    task_id: int
    attempt: int
    lease_id: int
    queue: str
    name: str
    outcome: str
    error_class: str | None
    error: str | None
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at ``now``; ``completed`` and ``failed`` are counts of the window from since to until."""

    now: datetime
    database: str
    version: str
    since: datetime
    until: datetime
    queues: Sequence[QueueCounts]
    completed: Sequence[EndedRow]
    failed: Sequence[EndedRow]
    running: Sequence[RunningTask]
    failures: Sequence[FailureRow]
    workers: Sequence[reading.WorkerRow]


def read_look(connection: SyncConnection, last: datetime | None) -> Look:
    """Look; ``last`` is the ``until`` of the look before, None for the first. Raises DatabaseError."""
    server = fetch_all(connection, reading.server())[0]
    until = server.now - COMMITTED
    since = until - FIRST if last is None else max(last, server.now - BACK_MAX)
    seen = server.now - BACK_MAX if last is None else max(since - OVERLAP, server.now - BACK_MAX)
    queues, _ = read_counts(connection, LOOK, limit=QUEUES_MAX)
    return Look(
        now=server.now,
        database=server.database,
        version=server.version,
        since=since,
        until=until,
        queues=sorted(queues.values(), key=lambda queue: queue.queue),
        completed=fetch_all(connection, completed(since, until, limit=ENDED_ROWS_MAX)),
        failed=fetch_all(connection, failed(since, until, limit=ENDED_ROWS_MAX)),
        running=fetch_all(connection, running(scan=RUNNING_SCAN_MAX, limit=RUNNING_MAX)),
        failures=fetch_all(connection, failures(seen, scan=FAILURES_SCAN_MAX, limit=FAILURES_MAX)),
        workers=fetch_all(connection, reading.workers(limit=WORKERS_MAX)),
    )


def running(*, scan: int, limit: int) -> Statement[RunningTask]:
    """List the tasks that have been running for longest, with their workers."""
    return Statement(sql("tasks_running"), {"scan": scan, "limit": limit}, RunningTask)


def completed(since: datetime, until: datetime, *, limit: int) -> Statement[EndedRow]:
    """Count what was completed in a window, by queue."""
    return Statement(sql("history_count_between"), {"since": since, "until": until, "limit": limit}, EndedRow)


def failed(since: datetime, until: datetime, *, limit: int) -> Statement[EndedRow]:
    """Count the attempts that did not succeed in a window, by queue."""
    return Statement(sql("attempts_count_between"), {"since": since, "until": until, "limit": limit}, EndedRow)


def failures(since: datetime, *, scan: int, limit: int) -> Statement[FailureRow]:
    """List the attempts that did not succeed since a moment, newest first."""
    return Statement(sql("attempts_watch"), {"since": since, "scan": scan, "limit": limit}, FailureRow)
