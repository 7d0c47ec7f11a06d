"""The rows and values that the floors hand to each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

Status = Literal["scheduled", "queued", "running", "retrying", "completed", "cancelled", "dead"]
STATUSES: tuple[Status, ...] = ("scheduled", "queued", "running", "retrying", "completed", "cancelled", "dead")
OnConflict = Literal["ignore", "raise", "replace"]


class Claimed(NamedTuple):
    """One claimed task, as every claiming statement returns it.

    ``payload`` and ``headers`` are JSON text: a text that Python cannot read must fail this
    task alone, so it is decoded later, inside the task's own error handling. ``losses`` says how
    many times in a row the process that ran the task was lost.
    """

    id: int
    lease_id: int
    name: str
    payload: str
    attempt: int
    max_attempts: int | None
    timeout_s: float | None
    priority: int
    run_at: datetime
    headers: str | None
    losses: int = 0


class Look(NamedTuple):
    """A row of a claim from the head: a task, if one was claimed, and what was seen of the queue.

    ``alike`` is the number of workers with the same handlers that serve it, this one with them, where
    there was all that was asked for; else 0.
    """

    is_paused: bool
    alike: int
    task: Claimed | None


def tasks_of(looks: Iterable[Look]) -> list[Claimed]:
    """Give the tasks that a claim from the head took."""
    return [look.task for look in looks if look.task is not None]


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of an enqueue: the task's id, and whether this call created it.

    ``created`` is False when a living task already had the ``unique_key``; the id is its.
    """

    id: int
    created: bool


@dataclass(frozen=True, slots=True)
class EnqueuedMany:
    """How many tasks a bulk enqueue created, and how many already lived under their key."""

    created: int
    existing: int


class NewTask(NamedTuple):
    """One task to enqueue, checked; ``payload`` is JSON text. Unset fields stay None.

    A tuple, because a bulk makes one per task and no other frozen thing is made as fast.
    """

    name: str
    payload: str = "{}"
    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    delay_s: float | None = None
    unique_key: str | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    headers: str | None = None


@dataclass(frozen=True, slots=True)
class TaskType:
    """What a worker tells the database about one of its handlers."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    timeout_s: float | None
    retry: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process, as its row in ``pgtasks.workers`` describes it.

    ``queue_slots`` are the own limits of ``queues``, in the same order. ``isolated`` are the names
    that need one of its ``children``; None when it has no child processes.
    """

    id: UUID
    name: str
    queues: tuple[str, ...]
    names: tuple[str, ...]
    slots: int
    lease_s: float
    version: str
    queue_slots: tuple[int | None, ...] = ()
    children: int | None = None
    isolated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """A cron schedule as code defines it; checked where it is made (``app.cron``)."""

    name: str
    expression: str
    timezone: str
    task: str
    payload: dict[str, Any]
    queue: str | None = None
    priority: int | None = None
    seconds: bool = False
    missed: Literal["skip", "latest", "all"] = "latest"
    missed_max: int = 100
    overlap: Literal["allow", "skip"] = "allow"
    jitter_s: float = 0.0
