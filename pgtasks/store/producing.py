"""Enqueueing: the statements, the bulk stream, and the pools a program enqueues through."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from pgtasks.errors import DatabaseError, DatabaseUnavailable, UniqueConflict
from pgtasks.model import Enqueued, EnqueuedMany, NewTask, OnConflict
from pgtasks.store import conninfo
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
POOL_CONNECTIONS_MAX = 10
POOL_WAIT_S = 10.0
# Its threads are daemons: one that waits for a dead server is not waited for.
POOL_CLOSE_S = 0.5
# A pooled connection that lay unused for longer is tried before it is handed out: the server
# may have been restarted meanwhile. A busy one is not, which would cost a round trip each.
_UNTRIED_S = 2.0


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
        for chunk in _chunks(tasks):
            if chunk.plain:
                now = fetch_all(connection, clock())[0]
                with (
                    _placed(chunk.plain_at),
                    translated(),
                    connection.cursor() as cursor,
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
            for chunk in _chunks(tasks):
                if chunk.plain:
                    now = (await afetch_all(connection, clock()))[0]
                    with _placed(chunk.plain_at), translated():
                        async with connection.cursor() as cursor, cursor.copy(sql("tasks_copy")) as copy:
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

    def __init__(self, start: int, tasks: list[NewTask]) -> None:
        self.plain: list[NewTask] = []
        self.plain_at: list[int] = []
        self.keyed: list[NewTask] = []
        self.keyed_at: list[int] = []
        for place, task in enumerate(tasks, start):
            streamed = task.unique_key is None and task.queue is not None and task.priority is not None
            (self.plain if streamed else self.keyed).append(task)
            (self.plain_at if streamed else self.keyed_at).append(place)

    def check(self, done: Keyed, on_conflict: OnConflict) -> None:
        """Raise UniqueConflict for the first taken key, if that is asked for."""
        if on_conflict == "raise" and done.conflict_at is not None:
            key = self.keyed[done.conflict_at].unique_key or ""
            raise UniqueConflict(key, done.conflict_id or 0, position=self.keyed_at[done.conflict_at])


def _chunks(tasks: Iterable[NewTask]) -> Iterator[_Chunk]:
    source, start = iter(tasks), 0
    while found := list(islice(source, CHUNK_ROWS)):
        yield _Chunk(start, found)
        start += len(found)


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


class Pools:
    """The connections a program enqueues through: one pool for threads, one per event loop.

    Opened on first use, made anew in a forked child, since a connection that two processes
    use hangs both. A loop's pool is closed with its loop: it hangs on an asynchronous
    generator, which ``loop.shutdown_asyncgens`` (a part of ``asyncio.run``) closes.
    """

    def __init__(self, dsn: Callable[[], str], pooler: str = "none") -> None:
        self._dsn, self._pooler = dsn, pooler
        self._reset()
        _all_pools.add(self)

    def _reset(self) -> None:
        self._pool: ConnectionPool[SyncConnection] | None = None
        self._loops: dict[asyncio.AbstractEventLoop, _LoopPool] = {}
        self._used: weakref.WeakKeyDictionary[object, float] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[SyncConnection]:
        """Lend a connection in autocommit mode; raises DatabaseUnavailable when there is none."""
        with self._lock:
            pool = self._pool
            if pool is None:
                pool = self._pool = ConnectionPool(check=self._check, **self._arguments(psycopg.Connection))
                pool.open()
        try:
            with translated(self._dsn()), pool.connection() as connection:
                yield connection
                self._used[connection] = time.monotonic()
        except PoolTimeout as error:
            raise self._timed_out() from error

    @asynccontextmanager
    async def aconnection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection of the running loop's pool; raises DatabaseUnavailable when there is none."""
        loop = asyncio.get_running_loop()
        ours = self._loops.get(loop) or await self._aopen(loop)
        try:
            with translated(self._dsn()):
                async with ours.pool.connection() as connection:
                    yield connection
                    self._used[connection] = time.monotonic()
        except PoolTimeout as error:
            raise self._timed_out() from error

    async def _aopen(self, loop: asyncio.AbstractEventLoop) -> _LoopPool:
        # Loops that were closed without shutdown_asyncgens(): their sockets are closed with their pools.
        for closed in [one for one in list(self._loops) if one.is_closed()]:
            del self._loops[closed]
        pool = AsyncConnectionPool(check=self._acheck, **self._arguments(psycopg.AsyncConnection))
        ours = self._loops[loop] = _LoopPool(pool, self._closed_with(loop, pool))
        await pool.open()
        await anext(ours.keeper)
        return ours

    async def _closed_with(
        self, loop: asyncio.AbstractEventLoop, pool: AsyncConnectionPool[AsyncConnection]
    ) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._loops.pop(loop, None)
            await pool.close()

    def close(self) -> None:
        """Close the threads' pool."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(timeout=POOL_CLOSE_S)

    async def aclose(self) -> None:
        """Close the running loop's pool."""
        ours = self._loops.get(asyncio.get_running_loop())
        if ours is not None:
            await ours.keeper.aclose()

    def _arguments(self, connection_class: type[Any]) -> dict[str, Any]:
        return {
            "conninfo": conninfo.complete(self._dsn(), "client", pooler=self._pooler),
            "connection_class": connection_class,
            "kwargs": {"autocommit": True, "prepare_threshold": 2 if self._pooler == "none" else None},
            "min_size": 0,
            "max_size": POOL_CONNECTIONS_MAX,
            "timeout": POOL_WAIT_S,
            "max_idle": 60.0,
            "open": False,
            "name": "pgtasks",
        }

    def _check(self, connection: SyncConnection) -> None:
        if time.monotonic() - self._used.get(connection, 0.0) > _UNTRIED_S:
            ConnectionPool.check_connection(connection)

    async def _acheck(self, connection: AsyncConnection) -> None:
        if time.monotonic() - self._used.get(connection, 0.0) > _UNTRIED_S:
            await AsyncConnectionPool.check_connection(connection)

    def _timed_out(self) -> DatabaseUnavailable:
        return DatabaseUnavailable(
            f"no connection to {conninfo.server_of(self._dsn()) or 'PostgreSQL'} within {POOL_WAIT_S:g} s"
        )


class _LoopPool(NamedTuple):
    """An event loop's pool, and the generator whose end closes it."""

    pool: AsyncConnectionPool[AsyncConnection]
    keeper: AsyncGenerator[None]


_all_pools: weakref.WeakSet[Pools] = weakref.WeakSet()


_parents: list[object] = []


def _forget_in_child() -> None:
    for pools in list(_all_pools):
        # Kept, not closed: the parent goes on using these connections.
        _parents.append((pools._pool, pools._loops))  # noqa: SLF001 - as below
        pools._reset()  # noqa: SLF001 - the hook is part of the class, kept outside for os.register_at_fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
