"""The connections a program enqueues through: one pool for all its threads, one per event loop.

One that breaks, or meets a server that is read-only or ends, takes the free ones with it: they lead
to the same server.

Small on purpose. Nothing runs in the background, so there is no thread that a fork loses and no
task that keeps an event loop from ending: a connection is opened when one is asked for and none
is free, tried when it lay unused for long enough to have died, and closed when it lay longer.

In a forked child the pools begin anew: a connection that two processes use hangs both. A loop's
pool is closed with its loop: it hangs on an asynchronous generator, which
``loop.shutdown_asyncgens`` (a part of ``asyncio.run``) closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from pgtasks.errors import DatabaseError, DatabaseUnavailable
from pgtasks.store.session import (
    AsyncConnection,
    SyncConnection,
    aconnect,
    afetch_all,
    connect,
    fetch_all,
    is_about_route,
    is_about_statement,
)
from pgtasks.store.statements import clock

CONNECTIONS_MAX = 10
WAIT_S = 10.0
# A connection that lay unused for longer is tried before it is lent: the server may have been
# restarted meanwhile. A busy one is not, which would cost a round trip each.
UNTRIED_S = 2.0
IDLE_S_MAX = 60.0

C = TypeVar("C", SyncConnection, AsyncConnection)


class Shelf(Generic[C]):
    """The free connections of a pool, the last used on top."""

    def __init__(self) -> None:
        self._free: list[tuple[C, float]] = []
        self._lock = threading.Lock()
        # When nobody closed them: at the end of the program, or of the pool.
        weakref.finalize(self, _finish, self._free, os.getpid())

    def take(self, now: float) -> tuple[C, bool] | None:
        """Give a free connection, and whether it is to be tried first; None when there is none."""
        with self._lock:
            if not self._free:
                return None
            connection, used_at = self._free.pop()
            return connection, now - used_at > UNTRIED_S

    def put(self, connection: C, now: float) -> list[C]:
        """Take a connection back; gives those to close, which lay too long or are of no more use."""
        with self._lock:
            stale = [one for one, used_at in self._free if now - used_at > IDLE_S_MAX]
            del self._free[: len(stale)]
            if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                self._free.append((connection, now))
            else:
                stale.append(connection)
            return stale

    def clear(self) -> list[C]:
        """Give all free connections, to be closed."""
        with self._lock:
            free = [connection for connection, _ in self._free]
            self._free.clear()
            return free


def _finish(free: list[tuple[Any, float]], owner_pid: int) -> None:
    """Close connections without a word, unless they are a parent process's."""
    if os.getpid() == owner_pid:
        for connection, _ in free:
            with contextlib.suppress(psycopg.Error):
                connection.pgconn.finish()


class ThreadPool:
    """The connections of all threads of this process."""

    def __init__(self, dsn: str, pooler: str) -> None:
        self._dsn, self._pooler = dsn, pooler
        self._shelf: Shelf[SyncConnection] = Shelf()
        self._room = threading.Semaphore(CONNECTIONS_MAX)

    @contextmanager
    def lend(self) -> Iterator[SyncConnection]:
        """Lend a connection in autocommit mode; raises DatabaseUnavailable when there is none."""
        if not self._room.acquire(timeout=WAIT_S):
            raise _all_in_use()
        try:
            connection = self._live() or connect(self._dsn, "client", pooler=self._pooler)
            try:
                yield connection
            except DatabaseError as error:
                if not is_about_statement(error):
                    connection.close()
                if is_about_route(error):
                    self.close()
                raise
            finally:
                for stale in self._shelf.put(connection, time.monotonic()):
                    stale.close()
        finally:
            self._room.release()

    def _live(self) -> SyncConnection | None:
        while (found := self._shelf.take(time.monotonic())) is not None:
            connection, untried = found
            if not untried:
                return connection
            try:
                fetch_all(connection, clock())
            except DatabaseError:
                connection.close()
            else:
                return connection
        return None

    def close(self) -> None:
        """Close the free connections."""
        for connection in self._shelf.clear():
            connection.close()


class LoopPool:
    """The connections of one event loop."""

    def __init__(self, dsn: str, pooler: str) -> None:
        self._dsn, self._pooler = dsn, pooler
        self._shelf: Shelf[AsyncConnection] = Shelf()
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection in autocommit mode; raises DatabaseUnavailable when there is none."""
        try:
            await asyncio.wait_for(self._room.acquire(), WAIT_S)
        except TimeoutError:
            raise _all_in_use() from None
        try:
            connection = await self._live() or await aconnect(self._dsn, "client", pooler=self._pooler)
            try:
                yield connection
            except DatabaseError as error:
                if not is_about_statement(error):
                    await connection.close()
                if is_about_route(error):
                    await self.close()
                raise
            finally:
                for stale in self._shelf.put(connection, time.monotonic()):
                    await stale.close()
        finally:
            self._room.release()

    async def _live(self) -> AsyncConnection | None:
        while (found := self._shelf.take(time.monotonic())) is not None:
            connection, untried = found
            if not untried:
                return connection
            try:
                await afetch_all(connection, clock())
            except DatabaseError:
                await connection.close()
            else:
                return connection
        return None

    async def close(self) -> None:
        """Close the free connections."""
        for connection in self._shelf.clear():
            await connection.close()


def _all_in_use() -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"all {CONNECTIONS_MAX} connections that this process enqueues through were in use for {WAIT_S:g} s"
    )


class _Kept(NamedTuple):
    """An event loop's pool, and the generator whose end closes it."""

    pool: LoopPool
    keeper: AsyncGenerator[None]


class Pools:
    """The pools of one app, made when first used."""

    def __init__(self, dsn: Callable[[], str], pooler: Callable[[], str]) -> None:
        self._dsn, self._pooler = dsn, pooler
        self._begin()
        _all_pools.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._threads: ThreadPool | None = None
        self._loops: dict[asyncio.AbstractEventLoop, _Kept] = {}

    def connection(self) -> contextlib.AbstractContextManager[SyncConnection]:
        """Lend a connection to this thread; raises DatabaseUnavailable when there is none."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPool(self._dsn(), self._pooler())
            return self._threads.lend()

    @asynccontextmanager
    async def aconnection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection to the running loop; raises DatabaseUnavailable when there is none."""
        loop = asyncio.get_running_loop()
        kept = self._loops.get(loop) or await self._open(loop)
        async with kept.pool.lend() as connection:
            yield connection

    async def _open(self, loop: asyncio.AbstractEventLoop) -> _Kept:
        for ended in [one for one in list(self._loops) if one.is_closed()]:
            # It was closed without shutdown_asyncgens(); without its pool, its connections are closed.
            del self._loops[ended]
        pool = LoopPool(self._dsn(), self._pooler())
        kept = self._loops[loop] = _Kept(pool, self._closed_with(loop, pool))
        await anext(kept.keeper)
        return kept

    async def _closed_with(self, loop: asyncio.AbstractEventLoop, pool: LoopPool) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._loops.pop(loop, None)
            await pool.close()

    def close(self) -> None:
        """Close the threads' connections."""
        with self._lock:
            pool, self._threads = self._threads, None
        if pool is not None:
            pool.close()

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        kept = self._loops.get(asyncio.get_running_loop())
        if kept is not None:
            await kept.keeper.aclose()

    def leave_to_parent(self) -> object:
        """Begin anew in a forked child; gives what the parent goes on using, to be kept unclosed."""
        parents = (self._threads, self._loops)
        self._begin()
        return parents


_all_pools: weakref.WeakSet[Pools] = weakref.WeakSet()
_parents: list[object] = []


def _begin_in_child() -> None:
    _parents.extend(pools.leave_to_parent() for pools in list(_all_pools))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
