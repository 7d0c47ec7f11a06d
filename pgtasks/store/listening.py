"""The listening connection: notifications as they come, and statements in between.

psycopg's own iterator over notifications keeps the connection to itself while it waits. Here
the event loop watches the socket instead, so that the bells can be armed and released on the
same session at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg
from psycopg import sql

from pgtasks.errors import DatabaseError, DatabaseUnavailable
from pgtasks.store.session import AsyncConnection, Statement, aconnect, afetch_all, translated

R = TypeVar("R")
OnNotification = Callable[[str, str], None]
DEADLINE_S = 10.0


class Listening:
    """A session that listens; reports every notification and the loss of the connection."""

    def __init__(
        self, dsn: str, channels: Sequence[str], on_notification: OnNotification, on_lost: Callable[[], None], *, worker: str
    ) -> None:
        self._dsn, self._channels, self._worker = dsn, channels, worker
        self._on_notification, self._on_lost = on_notification, on_lost
        self._connection: AsyncConnection | None = None
        self._lock = asyncio.Lock()

    @property
    def connected(self) -> bool:
        """Tell whether the session is up, as far as this side knows."""
        return self._connection is not None and not self._connection.closed

    async def open(self) -> None:
        """Connect and listen; raises DatabaseUnavailable."""
        await self.close()
        connection = await aconnect(self._dsn, "listen", worker=self._worker)
        connection.add_notify_handler(lambda note: self._on_notification(note.channel, note.payload))
        with translated(self._dsn):
            for channel in self._channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        self._connection = connection
        self._watch()

    async def fetch_all(self, statement: Statement[R]) -> list[R]:
        """Run a statement on the listening session; raises DatabaseUnavailable when it is lost."""
        async with self._lock:
            connection = self._connection
            if connection is None or connection.closed:
                raise DatabaseUnavailable("the listening connection is lost")
            self._unwatch()
            try:
                async with asyncio.timeout(DEADLINE_S):
                    return await afetch_all(connection, statement)
            except (TimeoutError, DatabaseError) as error:
                self._lose()
                if isinstance(error, DatabaseError):
                    raise
                raise DatabaseUnavailable("no answer on the listening connection") from error
            finally:
                self._watch()

    async def close(self) -> None:
        """End the session."""
        self._unwatch()
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    def _watch(self) -> None:
        # psycopg takes the loop's reader of this socket for itself while a statement runs.
        if self.connected and self._connection is not None:
            asyncio.get_running_loop().add_reader(self._connection.fileno(), self._readable)

    def _unwatch(self) -> None:
        if self.connected and self._connection is not None:
            asyncio.get_running_loop().remove_reader(self._connection.fileno())

    def _readable(self) -> None:
        """Read what came in on the socket: notifications, or the end of the connection."""
        connection = self._connection
        if connection is None:
            return
        try:
            connection.pgconn.consume_input()
            while (note := connection.pgconn.notifies()) is not None:
                self._on_notification(note.relname.decode(), note.extra.decode())
        except psycopg.Error:
            self._lose()
            return
        if connection.pgconn.status != psycopg.pq.ConnStatus.OK:
            self._lose()

    def _lose(self) -> None:
        self._unwatch()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()
            self._on_lost()
