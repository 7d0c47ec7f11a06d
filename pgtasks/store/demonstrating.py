"""The statements behind `pgtasks demo`: what became of the tasks that it made, and their end."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from pgtasks.model import Status
from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql


class DemoTask(NamedTuple):
    """A task as ``pgtasks.all_tasks`` shows it."""

    id: int
    name: str
    status: Status
    attempt: int
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    worker: UUID | None


class DemoAttempt(NamedTuple):
    """An attempt that did not end in success."""

    task_id: int
    attempt: int
    outcome: str
    worker_id: UUID | None
    error_class: str | None
    error: str | None


def forget(queue: str, first_id: int) -> Statement[tuple[int]]:
    """Delete the tasks of a queue from an id on, whatever became of them, and its workers."""
    return Statement(sql("tasks_forget"), {"queue": queue, "first_id": first_id})


def tasks(queue: str, first_id: int) -> Statement[DemoTask]:
    """Read the tasks of a queue from an id on."""
    return Statement(sql("all_tasks_read_since"), {"queue": queue, "first_id": first_id}, DemoTask)


def attempts(queue: str, first_id: int) -> Statement[DemoAttempt]:
    """Read their attempts that did not end in success."""
    return Statement(sql("attempts_read_since"), {"queue": queue, "first_id": first_id}, DemoAttempt)
