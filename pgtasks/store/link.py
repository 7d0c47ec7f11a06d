"""A connection that comes back: one per moving part of a worker, opened again after it broke.

Every statement has a deadline on this side. A server that vanished, a COMMIT that waits for a
stalled standby, or a middlebox that swallows packets answers no timeout of its own; past the
deadline the connection is given up and the outcome is unknown, which every statement here
survives (they are fenced by leases).

Connecting is no part of that: with several hosts, of which the first is silent, it may take
longer than a short deadline. A try that was not waited for goes on, and the next statement
finds its end.

What concerns the server and not only this connection is told to the others of the worker
(``route``).

Giving up shuts the socket down instead of closing it: whoever waits on it sees the end of the
stream and ends by its usual way, and its number cannot become another connection's meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import TypeVar

import psycopg

from pgtasks.errors import DatabaseError, DatabaseUnavailable
from pgtasks.store import conninfo
from pgtasks.store.bounded import DEADLINE_S
from pgtasks.store.identity import Identity, identify
from pgtasks.store.route import Route
from pgtasks.store.session import (
    QUERY_CANCELED,
    AsyncConnection,
    Statement,
    aconnect,
    afetch_all,
    is_about_route,
    is_about_statement,
)

R = TypeVar("R")
# How long a connection that was given up gets to end; shutting down a socket takes no time.
_CUT_S = 1.0


class Link:
    """One async connection of a worker; its statements go one after the other."""

    def __init__(
        self,
        dsn: str,
        part: conninfo.Part,
        *,
        worker: str = "",
        pooler: str = "none",
        deadline_s: float = DEADLINE_S,
        route: Route | None = None,
        on_server: Callable[[Identity], None] | None = None,
    ) -> None:
        """``route`` is shared by a worker's connections; ``on_server`` is told which server each new one leads to."""
        self._dsn, self._part, self._worker, self._pooler = dsn, part, worker, pooler
        self._deadline_s = deadline_s
        self._connection: AsyncConnection | None = None
        self._opening: asyncio.Task[AsyncConnection] | None = None
        self._turn = asyncio.Lock()
        self._queued = 0
        self._route, self._on_server = route or Route(), on_server
        self._generation = self._route.generation

    @property
    def connected(self) -> bool:
        """Tell whether a connection is open, as far as this side knows."""
        return self._connection is not None and not self._connection.closed

    async def fetch_all(self, statement: Statement[R], deadline_s: float | None = None) -> list[R]:
        """Run a statement, connecting first if need be; raises DatabaseUnavailable or DatabaseError.

        The deadline counts from this statement's turn; waiting for the turn has the same limit.
        """
        limit_s = self._deadline_s if deadline_s is None else deadline_s
        await self._take_turn(limit_s)
        try:
            connection = self._connection
            if connection is None or connection.closed or self._generation != self._route.generation:
                return await self._within(limit_s, statement)
            return await self._at_once(connection, limit_s, statement)
        except DatabaseError as error:
            if not is_about_statement(error):
                await self._drop(error)
            raise
        finally:
            self._turn.release()

    async def fetch_one(self, statement: Statement[R], deadline_s: float | None = None) -> R | None:
        """Run a statement and read its first row, None without one."""
        rows = await self.fetch_all(statement, deadline_s)
        return rows[0] if rows else None

    async def close(self) -> None:
        """Close the connection, and end a try to open one; the next use opens another."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.add_done_callback(_close_late)
            opening.cancel()
            await asyncio.wait({opening}, timeout=_CUT_S)
        await self._drop()

    async def _drop(self, error: DatabaseError | None = None) -> None:
        """Close the connection; if an error spoke of its server, so do the other connections."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if error is not None and is_about_route(error):
            self._route.leave(self._generation)
        with contextlib.suppress(psycopg.Error):
            await connection.close()

    async def _run(self, statement: Statement[R]) -> list[R]:
        if self._connection is not None and self._generation != self._route.generation:
            await self._drop()
        if self._connection is None or self._connection.closed:
            self._connection = await self._open()
        return await afetch_all(self._connection, statement)

    async def _open(self) -> AsyncConnection:
        """Connect; first wait for the try that an earlier statement did not wait for, if there is one."""
        if self._opening is not None:
            with contextlib.suppress(DatabaseError):
                return await self._opened(self._opening)
        self._generation = self._route.generation
        self._opening = asyncio.create_task(self._connect())
        return await self._opened(self._opening)

    async def _opened(self, opening: asyncio.Task[AsyncConnection]) -> AsyncConnection:
        # A wait that is cancelled leaves the try, or what it gave, to whoever comes next.
        await asyncio.wait({opening})
        if self._opening is opening:
            self._opening = None
        return opening.result()

    async def _connect(self) -> AsyncConnection:
        connection = await aconnect(self._dsn, self._part, worker=self._worker, pooler=self._pooler)
        if self._on_server is None:
            return connection
        try:
            self._on_server(await identify(connection))
        except BaseException:
            connection.pgconn.finish()
            raise
        return connection

    async def _take_turn(self, limit_s: float) -> None:
        if not (self._turn.locked() or self._queued):
            await self._turn.acquire()  # It is free: this does not wait.
            return
        self._queued += 1
        try:
            async with asyncio.timeout(limit_s):
                await self._turn.acquire()
        except TimeoutError:
            raise DatabaseUnavailable(f"the connection was busy for {limit_s:g} s with another statement") from None
        finally:
            self._queued -= 1

    async def _at_once(self, connection: AsyncConnection, limit_s: float, statement: Statement[R]) -> list[R]:
        """Run a statement on the open connection, without a task: a claim of a task just come is on its way sooner."""
        late = False

        def end() -> None:
            nonlocal late
            late = True
            shut_down(connection.fileno())

        timer = asyncio.get_running_loop().call_later(limit_s, end)
        try:
            rows = await afetch_all(connection, statement)
        except DatabaseError as error:
            if not late:
                raise
            self._connection = None
            connection.pgconn.finish()
            raise _unanswered(limit_s) from error
        except asyncio.CancelledError:
            self._connection = None
            connection.pgconn.finish()
            raise
        finally:
            timer.cancel()
        if late:
            # The answer came as the time was over: it counts, but the connection was shut down under it.
            self._connection = None
            connection.pgconn.finish()
        return rows

    async def _within(self, limit_s: float, statement: Statement[R]) -> list[R]:
        """Wait for a statement, and give the connection up past the limit, whatever psycopg waits for."""
        work = asyncio.ensure_future(self._run(statement))
        try:
            await asyncio.wait({work}, timeout=limit_s)
        except asyncio.CancelledError:
            await self._give_up(work)
            raise
        if not work.done():
            await self._give_up(work)
            raise _unanswered(limit_s)
        return work.result()

    async def _give_up(self, work: asyncio.Future[list[R]]) -> None:
        connection, self._connection = self._connection, None
        if connection is None or connection.closed:
            work.cancel()  # It is still connecting, which goes on.
        else:
            shut_down(connection.fileno())
        done, _ = await asyncio.wait({work}, timeout=_CUT_S)
        if not done:
            work.cancel()
        elif not work.cancelled():
            work.exception()  # Seen, so that asyncio does not report it as forgotten.


def _unanswered(limit_s: float) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"no answer within {limit_s:g} s; the connection was given up", sqlstate=QUERY_CANCELED)


def _close_late(opening: asyncio.Task[AsyncConnection]) -> None:
    """Close a connection that nobody wants any more when it comes."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().pgconn.finish()


def shut_down(descriptor: int) -> None:
    """End the stream of a socket that somebody else owns and closes."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as twin:
        twin.shutdown(socket.SHUT_RDWR)
