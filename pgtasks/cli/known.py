"""Telling a queue or name that is empty from one that is misspelt."""

from __future__ import annotations

from pgtasks.cli.options import did_you_mean
from pgtasks.errors import NotFound
from pgtasks.store import reading
from pgtasks.store.overview import QUEUES_MAX, WORKERS_MAX
from pgtasks.store.session import SyncConnection, fetch_all


def queues(connection: SyncConnection) -> list[str]:
    """Name the queues that have tasks, dead letters, settings, handlers or live workers."""
    return [row.queue for row in fetch_all(connection, reading.queues(limit=QUEUES_MAX))]


def names(connection: SyncConnection) -> list[str]:
    """Name the tasks that workers have registered."""
    registered = [row.name for row in fetch_all(connection, reading.known_names())]
    running = [name for row in fetch_all(connection, reading.workers(limit=WORKERS_MAX)) for name in row.names]
    return list(dict.fromkeys([*registered, *running]))


def require(connection: SyncConnection, *, queue: str | None = None, name: str | None = None) -> None:
    """Raise NotFound for a queue or name that nobody knows, with what was probably meant.

    Ask only after a look found nothing: a name may have tasks without ever having had a worker.
    """
    if queue is not None:
        existing = queues(connection)
        if queue not in existing:
            raise NotFound(f"there is no queue {queue!r}{did_you_mean(queue, existing)} — see: pgtasks queues list")
    if name is not None:
        registered = names(connection)
        if name not in registered:
            raise NotFound(
                f"there is no task named {name!r}{did_you_mean(name, registered)} — no worker has registered it, "
                "and none of the tasks looked at has it"
            )
