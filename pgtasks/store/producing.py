"""Enqueueing: the statements, the bulk stream, and the pools a program enqueues through."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from pgtasks.errors import DatabaseUnavailable
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
# A pooled connection that lay unused for longer is tried before it is handed out: the server
# may have been restarted meanwhile. A busy one is not, which would cost a round trip each.
_UNTRIED_S = 2.0


class Counts(NamedTuple):
    """How many tasks of a chunk were created, and how many lived already."""

    created: int
    existing: int


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
            "on_conflict": on_conflict,
        },
        Enqueued,
    )


def enqueue_keyed(tasks: list[NewTask], on_conflict: OnConflict) -> Statement[Counts]:
    """Add a chunk of tasks that have a unique_key."""
    return Statement(
        sql("tasks_enqueue_many"),
        {"tasks": "[" + ",".join(map(_as_item, tasks)) + "]", "on_conflict": on_conflict},
        Counts,
    )


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
    """Add any number of tasks in one transaction, in constant memory."""
    totals = Counts(0, 0)
    with translated(), connection.transaction():
        for chunk in _chunks(tasks):
            plain, keyed = _split(chunk)
            if plain:
                now = fetch_all(connection, clock())[0]
                with connection.cursor() as cursor, cursor.copy(sql("tasks_copy")) as copy:
                    for row in _rows(plain, now):
                        copy.write_row(row)
                totals = Counts(totals.created + len(plain), totals.existing)
            if keyed:
                totals = _add(totals, fetch_all(connection, enqueue_keyed(keyed, on_conflict))[0])
    return EnqueuedMany(*totals)


async def aenqueue_many(
    connection: AsyncConnection, tasks: Iterable[NewTask], on_conflict: OnConflict
) -> EnqueuedMany:
    """Add any number of tasks in one transaction, in constant memory."""
    totals = Counts(0, 0)
    with translated():
        async with connection.transaction():
            for chunk in _chunks(tasks):
                plain, keyed = _split(chunk)
                if plain:
                    now = (await afetch_all(connection, clock()))[0]
                    async with connection.cursor() as cursor, cursor.copy(sql("tasks_copy")) as copy:
                        for row in _rows(plain, now):
                            await copy.write_row(row)
                    totals = Counts(totals.created + len(plain), totals.existing)
                if keyed:
                    totals = _add(totals, (await afetch_all(connection, enqueue_keyed(keyed, on_conflict)))[0])
    return EnqueuedMany(*totals)


def _chunks(tasks: Iterable[NewTask]) -> Iterator[list[NewTask]]:
    source = iter(tasks)
    while chunk := list(islice(source, CHUNK_ROWS)):
        yield chunk


def _split(chunk: list[NewTask]) -> tuple[list[NewTask], list[NewTask]]:
    keyed = [task for task in chunk if task.unique_key is not None]
    return ([task for task in chunk if task.unique_key is None] if keyed else chunk), keyed


def _rows(tasks: list[NewTask], now: datetime) -> Iterator[tuple[Any, ...]]:
    for task in tasks:
        yield (
            task.name,
            task.payload,
            task.queue or "default",
            task.priority or 0,
            task.run_at or (now if task.delay_s is None else now + timedelta(seconds=task.delay_s)),
            task.max_attempts,
            None if task.timeout_s is None else timedelta(seconds=task.timeout_s),
            task.headers,
        )


def _add(totals: Counts, more: Counts) -> Counts:
    return Counts(totals.created + more.created, totals.existing + more.existing)


class Pools:
    """The connections a program enqueues through: one pool for threads, one per event loop.

    Opened on first use, made anew in a forked child, since a connection that two processes
    use hangs both.
    """

    def __init__(self, dsn: Callable[[], str], pooler: str = "none") -> None:
        self._dsn, self._pooler = dsn, pooler
        self._lock = threading.Lock()
        self._reset()
        _all_pools.add(self)

    def _reset(self) -> None:
        self._pool: ConnectionPool[SyncConnection] | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncConnectionPool[AsyncConnection]] = (
            weakref.WeakKeyDictionary()
        )
        self._used: weakref.WeakKeyDictionary[object, float] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[SyncConnection]:
        """Lend a connection in autocommit mode; raises DatabaseUnavailable when there is none."""
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(check=self._check, **self._arguments(psycopg.Connection))
                self._pool.open()
        try:
            with translated(self._dsn()), self._pool.connection() as connection:
                yield connection
                self._used[connection] = time.monotonic()
        except PoolTimeout as error:
            raise self._timed_out() from error

    @asynccontextmanager
    async def aconnection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection of the running loop's pool; raises DatabaseUnavailable when there is none."""
        loop = asyncio.get_running_loop()
        pool = self._loops.get(loop)
        if pool is None:
            pool = AsyncConnectionPool(check=self._acheck, **self._arguments(psycopg.AsyncConnection))
            self._loops[loop] = pool
            await pool.open()
        try:
            with translated(self._dsn()):
                async with pool.connection() as connection:
                    yield connection
                    self._used[connection] = time.monotonic()
        except PoolTimeout as error:
            raise self._timed_out() from error

    def close(self) -> None:
        """Close the threads' pool."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    async def aclose(self) -> None:
        """Close the running loop's pool."""
        pool = self._loops.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

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


_all_pools: weakref.WeakSet[Pools] = weakref.WeakSet()


def _forget_in_child() -> None:
    for pools in list(_all_pools):
        pools._reset()  # noqa: SLF001 - the hook is part of the class, kept outside for os.register_at_fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
