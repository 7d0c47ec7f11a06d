"""Enqueueing: the statements and the bulk stream."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import chain
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
BLOCK_ROWS = 200
BLOCK_CHARACTERS = 32 * 1024
_NULL = "\\N"
_special = re.compile(r"[\\\t\n\r]").search


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


def unlimited() -> Statement[str]:
    """Take the time limit off the statements of this transaction: a stream is as slow as what feeds it."""
    return Statement(sql("server_unlimit"), {}, str)


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


def enqueue_many(
    connection: SyncConnection, tasks: Iterable[NewTask], on_conflict: OnConflict, *, ours: bool
) -> EnqueuedMany:
    """Add any number of tasks in one transaction, in constant memory; raises UniqueConflict or DatabaseError.

    A connection that is ``ours`` does nothing else, so it streams while the iterable goes on.
    """
    created = existing = 0
    if not connection.autocommit:
        # Begins the caller's transaction, if nothing has yet: ours must be a savepoint in it.
        fetch_all(connection, clock())
    with translated(), connection.transaction():
        if ours:
            fetch_all(connection, unlimited())
        may_copy = fetch_all(connection, copyable())[0]
        for chunk in _chunks(tasks, may_copy=may_copy, lazy=ours):
            blocks = chunk.blocks(fetch_all(connection, clock())[0])
            if (block := next(blocks, None)) is not None:
                with (
                    _placed(chunk.plain_at),
                    translated(),
                    psycopg.Cursor(connection) as cursor,
                    cursor.copy(sql("tasks_copy")) as copy,
                ):
                    while block is not None:
                        copy.write(block)
                        block = next(blocks, None)
                created += len(chunk.plain_at)
            if chunk.keyed:
                with _placed(chunk.keyed_at):
                    done = fetch_all(connection, enqueue_keyed(chunk.keyed, on_conflict))[0]
                chunk.check(done, on_conflict)
                created, existing = created + done.created, existing + done.existing
    return EnqueuedMany(created, existing)


async def aenqueue_many(
    connection: AsyncConnection, tasks: Iterable[NewTask], on_conflict: OnConflict, *, ours: bool
) -> EnqueuedMany:
    """Add any number of tasks in one transaction, in constant memory; raises UniqueConflict or DatabaseError."""
    created = existing = 0
    if not connection.autocommit:
        await afetch_all(connection, clock())
    with translated():
        async with connection.transaction():
            if ours:
                await afetch_all(connection, unlimited())
            may_copy = (await afetch_all(connection, copyable()))[0]
            for chunk in _chunks(tasks, may_copy=may_copy, lazy=ours):
                blocks = chunk.blocks((await afetch_all(connection, clock()))[0])
                if (block := next(blocks, None)) is not None:
                    with _placed(chunk.plain_at), translated():
                        async with psycopg.AsyncCursor(connection) as cursor, cursor.copy(sql("tasks_copy")) as copy:
                            while block is not None:
                                await copy.write(block)
                                block = next(blocks, None)
                    created += len(chunk.plain_at)
                if chunk.keyed:
                    with _placed(chunk.keyed_at):
                        done = (await afetch_all(connection, enqueue_keyed(chunk.keyed, on_conflict)))[0]
                    chunk.check(done, on_conflict)
                    created, existing = created + done.created, existing + done.existing
    return EnqueuedMany(created, existing)


class _Chunk:
    """Some thousand tasks: those that are streamed, those that need a statement, and where each stood.

    ``blocks`` sorts them, and has to be read to its end before the rest is looked at.
    """

    def __init__(self, start: int, tasks: Iterable[NewTask], *, may_copy: bool) -> None:
        self._start, self._tasks, self._may_copy = start, tasks, may_copy
        self.plain_at: list[int] = []
        self.keyed: list[NewTask] = []
        self.keyed_at: list[int] = []

    def blocks(self, now: datetime) -> Iterator[str]:
        """Give the lines to stream, some hundred at a time, while the tasks come in."""
        line, may_copy = _liner(now), self._may_copy
        lines: list[str] = []
        characters = 0
        for place, task in enumerate(self._tasks, self._start):
            if not may_copy or task.unique_key is not None or task.queue is None or task.priority is None:
                self.keyed.append(task)
                self.keyed_at.append(place)
                continue
            text = line(task)
            lines.append(text)
            self.plain_at.append(place)
            characters += len(text)
            if len(lines) >= BLOCK_ROWS or characters >= BLOCK_CHARACTERS:
                yield "".join(lines)
                lines.clear()
                characters = 0
        if lines:
            yield "".join(lines)

    @property
    def end(self) -> int:
        """The position of the first task that is not in it."""
        return self._start + len(self.plain_at) + len(self.keyed_at)

    def check(self, done: Keyed, on_conflict: OnConflict) -> None:
        """Raise UniqueConflict for the first taken key, if that is asked for."""
        if on_conflict == "raise" and done.conflict_at is not None:
            key = self.keyed[done.conflict_at].unique_key or ""
            raise UniqueConflict(key, done.conflict_id or 0, position=self.keyed_at[done.conflict_at])


def _chunks(tasks: Iterable[NewTask], *, may_copy: bool, lazy: bool) -> Iterator[_Chunk]:
    """Cut the tasks into chunks of bounded length and size.

    The tasks of a lazy one are asked for while it is streamed: the server works on the last ones
    while the next ones are made. That takes a connection that the iterable cannot use meanwhile.
    """
    source, start = iter(tasks), 0
    for first in source:
        some = _some(chain([first], source))
        chunk = _Chunk(start, some if lazy else list(some), may_copy=may_copy)
        yield chunk
        start = chunk.end


def _some(tasks: Iterable[NewTask]) -> Iterator[NewTask]:
    characters = 0
    for count, task in enumerate(tasks, 1):
        yield task
        characters += len(task.payload)
        if count >= CHUNK_ROWS or characters >= CHUNK_CHARACTERS:
            return


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


def _liner(now: datetime) -> Callable[[NewTask], str]:
    """Give what makes the line of a task in COPY's text format; its columns are those of tasks_copy.sql."""
    at_once, began = str(now), time.monotonic()

    def line(task: NewTask) -> str:
        if task.run_at is not None:
            run_at = str(task.run_at)
        elif task.delay_s is None:
            run_at = at_once
        else:
            # Tasks may be made long after the clock was read, by an iterable that takes its time.
            run_at = str(now + timedelta(seconds=task.delay_s + time.monotonic() - began))
        fields = f"{_field(task.name)}\t{_field(task.payload)}\t{_field(task.queue)}\t{task.priority}\t{run_at}"
        if task.max_attempts is None and task.timeout_s is None and task.headers is None:
            return fields + "\t\\N\t\\N\t\\N\n"
        attempts = _NULL if task.max_attempts is None else task.max_attempts
        timeout = _NULL if task.timeout_s is None else timedelta(seconds=task.timeout_s)
        return f"{fields}\t{attempts}\t{timeout}\t{_field(task.headers)}\n"

    return line


def _field(text: str | None) -> str:
    """Write a text as COPY reads it."""
    if text is None:
        return _NULL
    if _special(text) is None:
        return text
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
