"""Pictures of a database as `pgtasks top` knows them, made of few words."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pgtasks.cli.top_state import Picture
from pgtasks.store.overview import QueueCounts
from pgtasks.store.reading import WorkerRow
from pgtasks.store.watching import EndedRow, FailureRow, Look, RunningTask

NOW = datetime(2026, 11, 29, 21, 0, 0, tzinfo=UTC)
WORKER = UUID(int=7)


def ago(seconds: float) -> datetime:
    """Return a moment before the pictures' present."""
    return NOW - timedelta(seconds=seconds)


def queue(name: str, **counts: Any) -> QueueCounts:
    """Return a queue."""
    return QueueCounts(name, **counts)


def task(
    id: int, queue: str = "default", name: str = "mail", age_s: float = 1, worker: str | None = "w:1"
) -> RunningTask:
    """Return a running task."""
    return RunningTask(id, queue, name, 1, ago(age_s), WORKER, worker, is_cancelled=False)


def failure(task_id: int, age_s: float = 1, *, error: str | None = "boom\nmore", **values: Any) -> FailureRow:
    """Return a failed attempt."""
    given = {"queue": "default", "name": "mail", "outcome": "failed", "error_class": "ValueError", **values}
    return FailureRow(task_id, 1, task_id, error=error, finished_at=ago(age_s), **given)


def worker(name: str = "w:1", **values: Any) -> WorkerRow:
    """Return a worker that is alive."""
    given = {"queues": ["default"], "names": ["mail"], "slots": 8, "busy": 2, "draining": False, "stuck": 0, **values}
    seen = {"version": "1", "started_at": ago(60), "last_seen_at": ago(1), "alive": True, "expired_leases": 0}
    return WorkerRow(id=WORKER, name=name, **(given | seen))


def picture(
    queues: Sequence[QueueCounts] = (),
    running: Sequence[RunningTask] = (),
    workers: Sequence[WorkerRow] = (),
    **more: Any,
) -> Picture:
    """Return a picture."""
    return Picture(NOW, "shop", "18.6", queues, running, workers, **more)


def look(
    since_s: float,
    until_s: float,
    *,
    completed: Sequence[EndedRow] = (),
    failed: Sequence[EndedRow] = (),
    failures: Sequence[FailureRow] = (),
) -> Look:
    """Return a look that saw what ended in a window before the present, and nothing else."""
    return Look(NOW, "shop", "18.6", ago(since_s), ago(until_s), (), completed, failed, (), failures, ())
