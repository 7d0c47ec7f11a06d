"""The engine's statements: one pure function per query, which builds it and names its row.

The tasks of a batch, and what belongs to each, are sorted by (task id, lease id): a row finds its own
values by the place of its id.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pgtasks.model import Claimed, Look, TaskType, WorkerInfo
from pgtasks.outcome import Cancelled, Completed, Dead, RetryIn
from pgtasks.retry import MAX_ATTEMPTS_DEFAULT
from pgtasks.store.arrays import numbers, texts
from pgtasks.store.session import Statement, as_tuple
from pgtasks.store.sql_files import sql


class Lane(NamedTuple):
    """One priority of a queue, and the (run_at, id) behind which a claim begins in it."""

    priority: int
    run_at: datetime
    id: int


class Moved(NamedTuple):
    """Which tasks of a batch were taken: None means all of them."""

    ids: list[int] | None


class Beat(NamedTuple):
    """What a heartbeat brought back."""

    now: datetime
    kept: list[int]
    locked: list[int]
    cancelled: list[int]
    lost: list[int]
    registered: bool


class Swept(NamedTuple):
    """What a sweep took back, as counts."""

    leases: int
    closed: int
    requeued: int
    dead: int
    cancelled: int


class Overdue(NamedTuple):
    """An expired lease and the tasks that it still holds."""

    id: int
    task_ids: list[int]


def claim(
    queue: str, lanes: Sequence[Lane], *, limit: int, names: list[str], worker_id: UUID, lease_s: float
) -> Statement[Claimed]:
    """Claim up to ``limit`` tasks behind the lanes' cursors, highest priority first."""
    return Statement(
        sql("tasks_claim"),
        {
            "queue": queue,
            "limit": limit,
            "names": names,
            "worker_id": worker_id,
            "lease_s": lease_s,
            "priorities": [lane.priority for lane in lanes],
            "run_ats": [lane.run_at for lane in lanes],
            "ids": [lane.id for lane in lanes],
        },
        Claimed,
    )


def follow(claim: Statement[Claimed], after_lease: int) -> Statement[Claimed]:
    """Make a claim from cursors one from behind what workers alike claimed under later leases."""
    return Statement(sql("tasks_follow"), {**claim.params, "after_lease": after_lease}, Claimed)


def rescan(queue: str, *, limit: int, names: list[str], worker_id: UUID, lease_s: float) -> Statement[Look]:
    """Claim up to ``limit`` tasks from the head of every priority in use; one row if there is none."""
    return Statement(
        sql("tasks_rescan"),
        {"queue": queue, "limit": limit, "names": names, "worker_id": worker_id, "lease_s": lease_s},
        _look,
    )


def _look(*values: Any) -> Look:
    is_paused, alike, *task = values
    return Look(is_paused, alike, None if task[0] is None else Claimed(*task))


def claim_suspects(queue: str, *, limit: int, names: list[str], worker_id: UUID, lease_s: float) -> Statement[Claimed]:
    """Claim up to ``limit`` tasks whose process was lost the last time they ran."""
    return Statement(
        sql("tasks_claim_suspects"),
        {"queue": queue, "limit": limit, "names": names, "worker_id": worker_id, "lease_s": lease_s},
        Claimed,
    )


Ended = tuple[int, int]  # task id, lease id


def complete(
    worker_id: UUID,
    tasks: Sequence[Ended],
    outcomes: Sequence[Completed],
    emptied: Collection[int],
    keeps: Sequence[bool] = (),
) -> Statement[Moved]:
    """Move completed tasks to history; those whose ``keeps`` is false leave no row there."""
    results = [outcome.result for outcome in outcomes]
    notes = [outcome.note for outcome in outcomes]
    return _finish(
        "tasks_complete",
        worker_id,
        tasks,
        emptied,
        results=results if any(result is not None for result in results) else None,
        notes=notes if any(notes) else None,
        keeps=None if all(keeps) else list(keeps),
    )


def retry(
    worker_id: UUID, tasks: Sequence[Ended], outcomes: Sequence[RetryIn], emptied: Collection[int]
) -> Statement[Moved]:
    """Put failed tasks back into the queue."""
    return _finish(
        "tasks_retry",
        worker_id,
        tasks,
        emptied,
        delays=numbers(outcome.delay_s for outcome in outcomes),
        **_failures(outcomes),
    )


def bury(
    worker_id: UUID, tasks: Sequence[Ended], outcomes: Sequence[Dead], emptied: Collection[int]
) -> Statement[Moved]:
    """Move tasks that failed for good to the dead letters."""
    return _finish(
        "tasks_bury",
        worker_id,
        tasks,
        emptied,
        reasons=[outcome.reason for outcome in outcomes],
        **_failures(outcomes),
    )


def cancelled(
    worker_id: UUID, tasks: Sequence[Ended], outcomes: Sequence[Cancelled], emptied: Collection[int]
) -> Statement[Moved]:
    """Finish running tasks as cancelled."""
    return _finish("tasks_cancelled", worker_id, tasks, emptied, reasons=[outcome.reason for outcome in outcomes])


def release(
    worker_id: UUID,
    tasks: Sequence[Ended],
    delays_s: Sequence[float],
    emptied: Collection[int],
    ended: Sequence[bool] = (),
) -> Statement[Moved]:
    """Give tasks back to the queue, no attempt charged; those that ``ended`` by themselves are suspects no more."""
    return _finish(
        "tasks_release",
        worker_id,
        tasks,
        emptied,
        delays=numbers(delays_s),
        ended=list(ended) if any(ended) else None,
    )


def _finish(
    name: str, worker_id: UUID, tasks: Sequence[Ended], emptied: Collection[int], **columns: Any
) -> Statement[Moved]:
    params = {
        "worker_id": worker_id,
        **_keys(tasks),
        "emptied": numbers(emptied),
        **columns,
    }
    return Statement(sql(name), params, Moved)


def _failures(outcomes: Sequence[RetryIn] | Sequence[Dead]) -> dict[str, str]:
    """Give their texts; those that fail together often fail alike, and what is like the first is sent once."""
    usual = outcomes[0].failure
    others = [None if outcome.failure is usual else outcome.failure for outcome in outcomes]
    return {
        "usual_outcome": usual.outcome,
        "usual_error_class": usual.error_class,
        "usual_error": usual.message,
        "usual_traceback": usual.traceback,
        "outcomes": texts(other.outcome if other else None for other in others),
        "error_classes": texts(other.error_class if other else None for other in others),
        "errors": texts(other.message if other else None for other in others),
        "tracebacks": texts(other.traceback if other else None for other in others),
    }


def recognise(tasks: Sequence[Ended], *, traceless: Sequence[bool], queues: Sequence[str]) -> Statement[int]:
    """Find which of these tasks have ended under exactly these leases.

    ``traceless`` says which of them leave no row when they complete, whatever their queue says.
    """
    params = {**_keys(tasks), "traceless": list(traceless), "queues": list(queues)}
    return Statement(sql("outcomes_recognise"), params, int)


def blocked(tasks: Sequence[Ended]) -> Statement[int]:
    """Find which of these tasks somebody else has locked."""
    return Statement(sql("tasks_blocked"), _keys(tasks), int)


def _keys(tasks: Sequence[Ended]) -> dict[str, str]:
    return {"ids": numbers(task[0] for task in tasks), "lease_ids": numbers(task[1] for task in tasks)}


def unanswered(worker_id: UUID, *, after: int, known: Collection[int]) -> Statement[Ended]:
    """Find tasks (id, lease id) leased to this worker by a claim whose reply was lost."""
    params = {"worker_id": worker_id, "after": after, "known": numbers(known)}
    return Statement(sql("leases_unanswered"), params, as_tuple)


def beat(
    worker_id: UUID,
    *,
    lease_s: float,
    lease_ids: Collection[int],
    running: Sequence[Ended],
    busy: int,
    stuck: int = 0,
    draining: bool,
) -> Statement[Beat]:
    """Renew a worker's leases and learn what was lost or is to be cancelled."""
    return Statement(
        sql("workers_beat"),
        {
            "worker_id": worker_id,
            "lease_s": lease_s,
            "lease_ids": numbers(lease_ids),
            "task_ids": numbers(task[0] for task in running),
            "task_lease_ids": numbers(task[1] for task in running),
            "busy": busy,
            "stuck": stuck,
            "draining": draining,
        },
        Beat,
    )


def sweep(
    fresh_until: datetime,
    *,
    limit: int,
    skip_leases: Collection[int] = (),
    lease_id: int | None = None,
    task_ids: Collection[int] | None = None,
    cause: str | None = None,
) -> Statement[Swept]:
    """Take back the tasks of up to ``limit`` expired leases, unless it is past ``fresh_until``.

    ``lease_id`` narrows it to one lease, and ``task_ids`` to some of its tasks. ``cause`` is how
    the process that ran them ended, where that is known.
    """
    return Statement(
        sql("leases_sweep"),
        {
            "fresh_until": fresh_until,
            "limit": limit,
            "max_attempts": MAX_ATTEMPTS_DEFAULT,
            "skip_leases": numbers(skip_leases),
            "lease_id": lease_id,
            "task_ids": None if task_ids is None else numbers(task_ids),
            "cause": cause,
        },
        Swept,
    )


def expire_leases(worker_id: UUID) -> Statement[int]:
    """End the leases of a worker whose process is dead; gives their ids."""
    return Statement(sql("leases_expire"), {"worker_id": worker_id}, int)


def list_expired(*, limit: int, skip_leases: Collection[int]) -> Statement[Overdue]:
    """List up to ``limit`` expired leases with their tasks."""
    return Statement(sql("leases_list"), {"limit": limit, "skip_leases": numbers(skip_leases)}, Overdue)


def register(worker: WorkerInfo) -> Statement[Any]:
    """Make a worker known."""
    return Statement(
        sql("workers_register"),
        {
            "id": worker.id,
            "name": worker.name,
            "queues": list(worker.queues),
            "names": list(worker.names),
            "slots": worker.slots,
            "lease_s": worker.lease_s,
            "version": worker.version,
            "queue_slots": list(worker.queue_slots),
            "children": worker.children,
            "isolated": list(worker.isolated),
        },
    )


def remove_worker(worker_id: UUID) -> Statement[Any]:
    """Take a worker that stopped off the list."""
    return Statement(sql("workers_remove"), {"worker_id": worker_id})


def prune_workers() -> Statement[Any]:
    """Forget workers that have been silent for long."""
    return Statement(sql("workers_prune"))


def upsert_types(types: Sequence[TaskType]) -> Statement[Any]:
    """Tell the database what a worker can run."""
    return Statement(
        sql("types_upsert"),
        {
            "names": [one.name for one in types],
            "queues": [one.queue for one in types],
            "priorities": numbers(one.priority for one in types),
            "max_attempts": numbers(one.max_attempts for one in types),
            "timeouts": [one.timeout_s for one in types],
            "retries": [json.dumps(one.retry) for one in types],
        },
    )


def due_in(queues: Sequence[str], names: list[str]) -> Statement[float | None]:
    """Say in how many seconds to look for the next task of these queues, of these names."""
    return Statement(sql("tasks_due"), {"queues": list(queues), "names": names}, _only)


def create_partitions(days_ahead: int) -> Statement[int]:
    """Create the missing day partitions of today and the coming days."""
    return Statement(sql("partitions_create"), {"days_ahead": days_ahead}, int)


def clock() -> Statement[datetime]:
    """Read the database's clock."""
    return Statement(sql("clock_read"), {}, _only)


def schema_state() -> Statement[tuple[bool, int, bool, bool]]:
    """Say whether a version table is there, the server's version, if it is read-only, and if tables are there."""
    return Statement(sql("schema_version"), {}, as_tuple)


def schema_revision() -> Statement[str]:
    """Say which revision the schema is at."""
    return Statement(sql("schema_revision"), {}, str)


def _only(value: Any) -> Any:
    return value
