"""A connection that comes back: one per moving part of a worker, opened again after it broke.

Every statement has a deadline on this side. A server that vanished, or a COMMIT that waits for
a stalled standby, answers no timeout of its own; past the deadline the socket is closed and
the outcome is unknown, which every statement here survives (they are fenced by leases).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

import psycopg

from pgtasks.errors import DatabaseError, DatabaseUnavailable
from pgtasks.store import conninfo
from pgtasks.store.session import (
    AsyncConnection,
    Statement,
    SyncConnection,
    aconnect,
    afetch_all,
    connect,
    fetch_all,
    is_wrong_server,
)

R = TypeVar("R")
STATEMENT_DEADLINE_S = 20.0


class Link:
    """One async connection of a worker; its statements go one after the other."""

    def __init__(
        self,
        dsn: str,
        part: conninfo.Part,
        *,
        worker: str = "",
        pooler: str = "none",
    ) -> None:
        self._dsn, self._part, self._worker, self._pooler = dsn, part, worker, pooler
        self._connection: AsyncConnection | None = None
        self._lock = asyncio.Lock()

    @property
    def connected(self) -> bool:
        """Tell whether a connection is open, as far as this side knows."""
        return self._connection is not None and not self._connection.closed

    async def fetch_all(self, statement: Statement[R], deadline_s: float = STATEMENT_DEADLINE_S) -> list[R]:
        """Run a statement, connecting first if need be; raises DatabaseUnavailable or DatabaseError."""
        try:
            return await self._within(deadline_s, self._run(statement))
        except DatabaseError as error:
            if isinstance(error, DatabaseUnavailable) and (not self.connected or is_wrong_server(error)):
                await self.close()
            raise

    async def fetch_one(self, statement: Statement[R], deadline_s: float = STATEMENT_DEADLINE_S) -> R | None:
        """Run a statement and read its first row, None without one."""
        rows = await self.fetch_all(statement, deadline_s)
        return rows[0] if rows else None

    async def close(self) -> None:
        """Close the connection, if one is open; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    async def _run(self, statement: Statement[R]) -> list[R]:
        async with self._lock:
            return await afetch_all(await self._connect(), statement)

    async def _connect(self) -> AsyncConnection:
        if self._connection is None or self._connection.closed:
            self._connection = await aconnect(self._dsn, self._part, worker=self._worker, pooler=self._pooler)
        return self._connection

    async def _within(self, deadline_s: float, work: Awaitable[list[R]]) -> list[R]:
        """Wait for a statement; past the deadline close the socket, whatever psycopg waits for."""
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=deadline_s)
        except asyncio.CancelledError:
            self._cut()
            task.cancel()
            raise
        if not done:
            self._cut()
            task.cancel()
            raise DatabaseUnavailable(f"no answer within {deadline_s:g} s; the connection was given up")
        return task.result()

    def _cut(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()


class ThreadLink:
    """One sync connection, for a thread of its own (the heartbeat)."""

    def __init__(self, dsn: str, part: conninfo.Part, *, worker: str = "", pooler: str = "none") -> None:
        self._dsn, self._part, self._worker, self._pooler = dsn, part, worker, pooler
        self._connection: SyncConnection | None = None

    def fetch_one(self, statement: Statement[R]) -> R | None:
        """Run a statement, connecting first if need be; raises DatabaseUnavailable or DatabaseError."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._dsn, self._part, worker=self._worker, pooler=self._pooler)
        try:
            rows = fetch_all(self._connection, statement)
        except DatabaseError as error:
            if self._connection.closed or is_wrong_server(error):
                self.close()
            raise
        return rows[0] if rows else None

    def close(self) -> None:
        """Close the connection, if one is open; may be called from another thread to end a wait."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()
