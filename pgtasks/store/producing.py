"""Enqueueing: the statements and the bulk stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from pgtasks.errors import DatabaseError, UniqueConflict
from pgtasks.model import Enqueued, EnqueuedMany, NewTask, OnConflict
from pgtasks.store.session import (
    AsyncConnection,
    Statement,
    SyncConnection,
    afetch_all,
    fetch_all,
    translated,
)
from pgtasks.store.sql_files import sql
from pgtasks.store.statements import clock

CHUNK_ROWS = 5000
CHUNK_CHARACTERS = 8 * 1024 * 1024


class Keyed(NamedTuple):
    """How many tasks of a chunk were created, how many lived already, and the first of those."""

    created: int
    existing: int
    conflict_at: int | None
    conflict_id: int | None


def enqueue(task: NewTask, on_conflict: OnConflict) -> Statement[Enqueued]:
    """Add one task, or find the living one with its unique_key."""
    return Statement(
        sql("tasks_enqueue"),
        {
            "name": task.name,
            "payload": task.payload,
            "queue": task.queue,
            "priority": task.priority,
            "run_at": task.run_at,
            "delay_s": task.delay_s,
            "unique_key": task.unique_key,
            "max_attempts": task.max_attempts,
            "timeout_s": task.timeout_s,
            "headers": task.headers,
            "on_conflict": asked(on_conflict),
        },
        Enqueued,
    )


def enqueue_keyed(tasks: list[NewTask], on_conflict: OnConflict) -> Statement[Keyed]:
    """Add a chunk of tasks that have a unique_key, or lack what the database knows about their type."""
    return Statement(
        sql("tasks_enqueue_many"),
        {"tasks": "[" + ",".join(map(_as_item, tasks)) + "]", "on_conflict": asked(on_conflict)},
        Keyed,
    )


def copyable() -> Statement[bool]:
    """Say whether this role may stream tasks into the table; one with EXECUTE alone may not."""
    return Statement(sql("tasks_copyable"), {}, bool)


def asked(on_conflict: OnConflict) -> OnConflict:
    """Give what SQL is asked for: "raise" is decided here, where it does not abort the caller's transaction."""
    return "ignore" if on_conflict == "raise" else on_conflict


def _as_item(task: NewTask) -> str:
    fields: dict[str, Any] = {
        "name": task.name,
        "queue": task.queue,
        "priority": task.priority,
        "run_at": task.run_at.isoformat() if task.run_at else None,
        "delay": task.delay_s,
        "unique_key": task.unique_key,
        "max_attempts": task.max_attempts,
        "timeout": task.timeout_s,
    }
    item = json.dumps({key: value for key, value in fields.items() if value is not None})
    return f'{item[:-1]},"payload":{task.payload},"headers":{task.headers or "null"}}}'


def enqueue_many(connection: SyncConnection, tasks: Iterable[NewTask], on_conflict: OnConflict) -> EnqueuedMany:
    """Add any number of tasks in one transaction, in constant memory; raises UniqueConflict or DatabaseError."""
    created = existing = 0
    if not connection.autocommit:
        # Begins the caller's transaction, if nothing has yet: ours must be a savepoint in it.
        fetch_all(connection, clock())
    with translated(), connection.transaction():
        may_copy = fetch_all(connection, copyable())[0]
        for chunk in _chunks(tasks, may_copy=may_copy):
            if chunk.plain:
                now = fetch_all(connection, clock())[0]
                with (
                    _placed(chunk.plain_at),
                    translated(),
                    psycopg.Cursor(connection) as cursor,
                    cursor.copy(sql("tasks_copy")) as copy,
                ):
                    for row in _rows(chunk.plain, now):
                        copy.write_row(row)
                created += len(chunk.plain)
            if chunk.keyed:
                with _placed(chunk.keyed_at):
                    done = fetch_all(connection, enqueue_keyed(chunk.keyed, on_conflict))[0]
                chunk.check(done, on_conflict)
                created, existing = created + done.created, existing + done.existing
    return EnqueuedMany(created, existing)


async def aenqueue_many(connection: AsyncConnection, tasks: Iterable[NewTask], on_conflict: OnConflict) -> EnqueuedMany:
    """Add any number of tasks in one transaction, in constant memory; raises UniqueConflict or DatabaseError."""
    created = existing = 0
    if not connection.autocommit:
        await afetch_all(connection, clock())
    with translated():
        async with connection.transaction():
            may_copy = (await afetch_all(connection, copyable()))[0]
            for chunk in _chunks(tasks, may_copy=may_copy):
                if chunk.plain:
                    now = (await afetch_all(connection, clock()))[0]
                    with _placed(chunk.plain_at), translated():
                        async with psycopg.AsyncCursor(connection) as cursor, cursor.copy(sql("tasks_copy")) as copy:
                            for row in _rows(chunk.plain, now):
                                await copy.write_row(row)
                    created += len(chunk.plain)
                if chunk.keyed:
                    with _placed(chunk.keyed_at):
                        done = (await afetch_all(connection, enqueue_keyed(chunk.keyed, on_conflict)))[0]
                    chunk.check(done, on_conflict)
                    created, existing = created + done.created, existing + done.existing
    return EnqueuedMany(created, existing)


class _Chunk:
    """Some thousand tasks: those that can be streamed, those that need a statement, and where each stood."""

    def __init__(self, start: int, tasks: list[NewTask], *, may_copy: bool) -> None:
        self.plain: list[NewTask] = []
        self.plain_at: list[int] = []
        self.keyed: list[NewTask] = []
        self.keyed_at: list[int] = []
        for place, task in enumerate(tasks, start):
            streamed = may_copy and task.unique_key is None and task.queue is not None and task.priority is not None
            (self.plain if streamed else self.keyed).append(task)
            (self.plain_at if streamed else self.keyed_at).append(place)

    def check(self, done: Keyed, on_conflict: OnConflict) -> None:
        """Raise UniqueConflict for the first taken key, if that is asked for."""
        if on_conflict == "raise" and done.conflict_at is not None:
            key = self.keyed[done.conflict_at].unique_key or ""
            raise UniqueConflict(key, done.conflict_id or 0, position=self.keyed_at[done.conflict_at])


def _chunks(tasks: Iterable[NewTask], *, may_copy: bool) -> Iterator[_Chunk]:
    """Cut the tasks into chunks of bounded length and size."""
    start, found, characters = 0, [], 0
    for task in tasks:
        found.append(task)
        characters += len(task.payload)
        if len(found) >= CHUNK_ROWS or characters >= CHUNK_CHARACTERS:
            yield _Chunk(start, found, may_copy=may_copy)
            start, found, characters = start + len(found), [], 0
    if found:
        yield _Chunk(start, found, may_copy=may_copy)


@contextmanager
def _placed(positions: list[int]) -> Iterator[None]:
    """Name the position of a task that the database refuses, among all the tasks given."""
    try:
        yield
    except DatabaseError as error:
        cause = error.__cause__
        if type(error) is not DatabaseError or not isinstance(cause, psycopg.Error):
            raise
        primary = cause.diag.message_primary or str(error)
        in_copy = re.search(r"^COPY tasks, line (\d+)", cause.diag.context or "", re.MULTILINE)
        in_array = re.match(r"pgtasks: tasks\[(\d+)\]: ", primary)
        if in_copy is not None:
            local = int(in_copy[1]) - 1
        elif in_array is not None:
            local, primary = int(in_array[1]), primary[in_array.end() :]
        else:
            raise
        raise DatabaseError(f"tasks[{positions[local]}]: {primary}", sqlstate=error.sqlstate) from cause


def _rows(tasks: list[NewTask], now: datetime) -> Iterator[tuple[Any, ...]]:
    for task in tasks:
        yield (
            task.name,
            task.payload,
            task.queue,
            task.priority,
            task.run_at or (now if task.delay_s is None else now + timedelta(seconds=task.delay_s)),
            task.max_attempts,
            None if task.timeout_s is None else timedelta(seconds=task.timeout_s),
            task.headers,
        )
