"""The statements behind `status`: each reads a bounded number of rows, and never a payload."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql

# So many running tasks are looked at for what each worker is busy with.
HELD_MAX = 100_000


class QueueRow(NamedTuple):
    """A queue, and what can be told about it without counting; ``workers`` counts live ones."""

    queue: str
    paused_at: datetime | None
    oldest_waiting_since: datetime | None
    workers: int


class SampledRow(NamedTuple):
    """What a sample of pages held of one queue and name; ``percentage`` 100 means all of it."""

    queue: str
    name: str
    scheduled: int
    queued: int
    running: int
    retrying: int
    due: int
    percentage: float


class CountedRow(NamedTuple):
    """A queue's live tasks, counted one by one up to a limit."""

    queue: str
    scheduled: int
    queued: int
    running: int
    retrying: int
    total: int


class HeadRow(NamedTuple):
    """How many tasks of a name wait at the head of a queue."""

    queue: str
    name: str
    waiting: int


class RunningRow(NamedTuple):
    """How many tasks of a queue run, counted through their leases."""

    queue: str
    running: int


class DeadRow(NamedTuple):
    """A queue's dead letters up to a limit, and the size that PostgreSQL thinks the table has."""

    queue: str
    dead: int
    table_rows: int


class SampledHistoryRow(NamedTuple):
    """What a sample of pages held of the tasks that a queue completed lately."""

    queue: str
    period: int
    recent: int
    percentage: float


class CompletedRow(NamedTuple):
    """What a queue completed lately, counted one by one up to a limit for all queues together."""

    queue: str
    completed: int
    first_at: datetime
    last_at: datetime


class WorkerRow(NamedTuple):
    """A worker process, as ``pgtasks.worker_stats`` describes it, but for ``busy``.

    That counts the tasks that its leases hold now, and its stuck handlers.
    """

    id: UUID
    name: str
    queues: list[str]
    names: list[str]
    slots: int
    busy: int
    draining: bool
    version: str
    started_at: datetime
    last_seen_at: datetime
    alive: bool
    expired_leases: int
    stuck: int


class LostRow(NamedTuple):
    """A worker whose leases expired, with what it still holds; no name when its row is gone."""

    worker_id: UUID
    name: str | None
    last_seen_at: datetime | None
    leases: int
    tasks: int
    expired_at: datetime


class SuspectsRow(NamedTuple):
    """Tasks of a queue and name whose process was lost, at most so many times in a row."""

    queue: str
    name: str
    tasks: int
    losses: int


class TransactionRow(NamedTuple):
    """A transaction that holds back vacuum: a session's, or a prepared one, which has no pid."""

    kind: str
    pid: int | None
    age_s: float
    username: str | None
    application: str | None
    state: str


class TypeRow(NamedTuple):
    """A task name that a worker has registered, and the queue its handler belongs to."""

    name: str
    queue: str


class ServerRow(NamedTuple):
    """The server, its time, and whether finished tasks went to a default partition."""

    version: str
    database: str
    now: datetime
    history_unpartitioned: bool
    attempts_unpartitioned: bool


def queues(*, limit: int) -> Statement[QueueRow]:
    """List the queues that have tasks, dead letters, settings, handlers or live workers."""
    return Statement(sql("queues_read"), {"limit": limit}, QueueRow)


def sample(*, pages: int) -> Statement[SampledRow]:
    """Count live tasks by queue and name on a sample of pages."""
    return Statement(sql("tasks_sample"), {"pages": pages}, SampledRow)


def count(names: Sequence[str], *, limit: int) -> Statement[CountedRow]:
    """Count the live tasks of some queues, up to a limit each."""
    return Statement(sql("tasks_count"), {"queues": list(names), "limit": limit}, CountedRow)


def heads(names: Sequence[str], *, limit: int) -> Statement[HeadRow]:
    """Count the names of the tasks that wait at the head of some queues."""
    return Statement(sql("tasks_heads"), {"queues": list(names), "limit": limit}, HeadRow)


def running(*, limit: int) -> Statement[RunningRow]:
    """Count running tasks by queue, through the leases."""
    return Statement(sql("leases_count"), {"limit": limit}, RunningRow)


def dead(names: Sequence[str], *, limit: int) -> Statement[DeadRow]:
    """Count the dead letters of some queues, up to a limit each."""
    return Statement(sql("dead_letters_count"), {"queues": list(names), "limit": limit}, DeadRow)


def sample_history(*, pages: int, period_s: float, recent_s: float) -> Statement[SampledHistoryRow]:
    """Estimate what was completed in two periods before now, from a sample of pages."""
    params = {"pages": pages, "period_s": period_s, "recent_s": recent_s}
    return Statement(sql("history_sample"), params, SampledHistoryRow)


def completed(*, period_s: float, limit: int) -> Statement[CompletedRow]:
    """Count what was completed in a period before now, up to a limit."""
    return Statement(sql("history_count"), {"period_s": period_s, "limit": limit}, CompletedRow)


def workers(*, limit: int) -> Statement[WorkerRow]:
    """List the workers, live ones first."""
    return Statement(sql("worker_stats_read"), {"limit": limit, "scan": HELD_MAX}, WorkerRow)


def lost(*, tolerated_s: float, limit: int) -> Statement[LostRow]:
    """Find leases that expired longer ago than the sweep ought to take, by worker."""
    return Statement(sql("leases_expired"), {"tolerated_s": tolerated_s, "limit": limit}, LostRow)


def suspects(*, scan: int, limit: int) -> Statement[SuspectsRow]:
    """Count the tasks whose process was lost, by queue and name."""
    return Statement(sql("tasks_suspects"), {"scan": scan, "limit": limit}, SuspectsRow)


def old_transactions(*, older_than_s: float, limit: int) -> Statement[TransactionRow]:
    """Find old transactions that hold back vacuum."""
    return Statement(sql("server_transactions"), {"older_than_s": older_than_s, "limit": limit}, TransactionRow)


def known_names() -> Statement[TypeRow]:
    """Name every task that a worker has ever registered."""
    return Statement(sql("types_names"), {}, TypeRow)


def server() -> Statement[ServerRow]:
    """Say which server this is and what time it has."""
    return Statement(sql("server_read"), {}, ServerRow)
