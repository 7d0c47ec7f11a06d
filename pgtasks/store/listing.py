"""The statements that list, show and steer single tasks and queues."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql

# How many of the newest rows of each table a filtered list looks at.
SCAN_ROWS = 100_000
_LIVE = {"scheduled", "queued", "running", "retrying"}
_FINISHED = {"completed", "cancelled"}


class TaskRow(NamedTuple):
    """A task in a list."""

    id: int
    queue: str
    name: str
    status: str
    attempt: int
    priority: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class TaskDetails(NamedTuple):
    """Everything about a task; ``payload``, ``result`` and ``headers`` are JSON text."""

    id: int
    queue: str
    name: str
    status: str
    payload: str
    result: str | None
    attempt: int
    max_attempts: int | None
    priority: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    error_class: str | None
    traceback: str | None
    reason: str | None
    timeout_s: float | None
    unique_key: str | None
    headers: str | None
    cancel_requested_at: datetime | None
    worker_id: UUID | None
    worker: str | None
    handler_max_attempts: int | None
    handler_timeout_s: float | None
    losses: int


class AttemptRow(NamedTuple):
    """An attempt that did not end in success."""

    attempt: int
    outcome: str
    error_class: str | None
    error: str | None
    traceback: str | None
    started_at: datetime | None
    finished_at: datetime
    worker_id: UUID | None
    worker: str | None


def tasks(
    *, before: int, limit: int, status: str | None = None, queue: str | None = None, name: str | None = None
) -> Statement[TaskRow]:
    """List tasks, newest first; filters look at the newest SCAN_ROWS of each table."""
    is_filtered = any(value is not None for value in (status, queue, name))
    return Statement(
        sql("all_tasks_list"),
        {
            "before": before,
            "limit": limit,
            "scan": max(SCAN_ROWS, limit) if is_filtered else limit,
            "status": status,
            "queue": queue,
            "name": name,
            "in_tasks": status is None or status in _LIVE,
            "in_history": status is None or status in _FINISHED,
            "in_dead": status is None or status == "dead",
        },
        TaskRow,
    )


def task(id: int) -> Statement[TaskDetails]:
    """Read everything about one task."""
    return Statement(sql("all_tasks_read"), {"id": id}, TaskDetails)


def attempts(id: int, *, limit: int) -> Statement[AttemptRow]:
    """List the last attempts of a task that did not end in success, oldest first."""
    return Statement(sql("attempts_read"), {"id": id, "limit": limit}, AttemptRow)


def cancel(id: int) -> Statement[tuple[str | None]]:
    """Cancel a task: cancelled, requested, finished, or None for no such task."""
    return Statement(sql("tasks_cancel"), {"id": id})


def hurry(id: int) -> Statement[tuple[str | None]]:
    """Make a task run again now: due, replayed, running, finished, unique_key_taken, or None."""
    return Statement(sql("tasks_hurry"), {"id": id})


def pause(queue: str) -> Statement[tuple[bool]]:
    """Stop claims from a queue; false when it was paused already."""
    return Statement(sql("queues_pause"), {"queue": queue})


def keeps_completed(queue: str) -> Statement[bool]:
    """Tell whether completed tasks of a queue leave a row in history."""
    return Statement(sql("queues_kept"), {"queue": queue}, bool)


def keep_completed(queue: str, *, keep: bool) -> Statement[tuple[bool]]:
    """Say whether completed tasks of a queue leave a row in history; false when it was so already."""
    return Statement(sql("queues_keep"), {"queue": queue, "keep": keep})


def resume(queue: str) -> Statement[tuple[bool]]:
    """Let claims from a queue go on; false when it was not paused."""
    return Statement(sql("queues_resume"), {"queue": queue})
