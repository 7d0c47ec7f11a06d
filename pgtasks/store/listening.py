"""The listening connection: notifications as they come, and statements in between.

psycopg's own iterator over notifications keeps the connection to itself while it waits. Here
the event loop watches the socket instead, so that the bells can be armed and released on the
same session at any moment. While a statement runs, psycopg watches the socket and hands the
notifications that come with the answer to the same handler.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from pgtasks.errors import DatabaseError, DatabaseUnavailable
from pgtasks.store.link import shut_down
from pgtasks.store.route import Route
from pgtasks.store.session import AsyncConnection, Statement, aconnect, afetch_all, is_about_route, translated

R = TypeVar("R")
OnNotification = Callable[[str, str], None]
DEADLINE_S = 10.0
# How long a connection that was given up gets to end; shutting down a socket takes no time.
_CUT_S = 1.0


class Listening:
    """A session that listens; reports every notification, and the loss of an open session."""

    def __init__(
        self,
        dsn: str,
        channels: Sequence[str],
        on_notification: OnNotification,
        on_lost: Callable[[], None],
        *,
        worker: str,
        route: Route | None = None,
    ) -> None:
        """``route`` is shared with the worker's other connections: when it is left, this session ends."""
        self._dsn, self._channels, self._worker = dsn, channels, worker
        self._route, self._follows = route or Route(), False
        self._generation = self._route.generation
        self._on_notification, self._on_lost = on_notification, on_lost
        self._connection: AsyncConnection | None = None
        self._encoding = "utf-8"
        # The loop is told by number whom to forget: a broken connection no longer knows its own.
        self._watched: int | None = None
        self._lock = asyncio.Lock()

    @property
    def connected(self) -> bool:
        """Tell whether the session is up, as far as this side knows."""
        return self._connection is not None and not self._connection.closed

    async def open(self) -> None:
        """Connect and listen; raises DatabaseUnavailable."""
        await self.close()
        self._follow_route()
        self._generation = self._route.generation
        connection = await aconnect(self._dsn, "listen", worker=self._worker)
        try:
            connection.add_notify_handler(lambda note: self._on_notification(note.channel, note.payload))
            await _in_time(connection, self._listen(connection))
        except BaseException:
            connection.pgconn.finish()
            raise
        self._connection, self._encoding = connection, connection.info.encoding
        self._watch()

    def _follow_route(self) -> None:
        if not self._follows:
            self._follows = True
            loop = asyncio.get_running_loop()
            self._route.on_left(lambda: _call(loop, self._leave))

    def _leave(self) -> None:
        """End the session, whatever it is doing: the end of its stream is noticed as any other."""
        if self.connected and self._connection is not None and self._generation != self._route.generation:
            shut_down(self._connection.fileno())

    async def _listen(self, connection: AsyncConnection) -> None:
        with translated(self._dsn):
            for channel in self._channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    async def fetch_all(self, statement: Statement[R]) -> list[R]:
        """Run a statement on the listening session; raises DatabaseUnavailable when it is lost."""
        async with self._lock:
            connection = self._connection
            if connection is None or connection.closed:
                self._lose()
                raise DatabaseUnavailable("the listening connection is lost")
            self._unwatch()
            try:
                return await _in_time(connection, afetch_all(connection, statement))
            except BaseException as error:
                # Whatever went wrong, nobody can tell which locks the session holds now.
                self._lose()
                if isinstance(error, DatabaseError) and is_about_route(error):
                    self._route.leave(self._generation)
                raise
            finally:
                self._watch()

    async def close(self) -> None:
        """End the session; its loss is not reported."""
        self._unwatch()
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    def _watch(self) -> None:
        if self._watched is None and self._connection is not None and not self._connection.closed:
            self._watched = self._connection.fileno()
            asyncio.get_running_loop().add_reader(self._watched, self._readable)

    def _unwatch(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            asyncio.get_running_loop().remove_reader(watched)

    def _readable(self) -> None:
        """Read what came in on the socket: notifications, or the end of the connection."""
        connection = self._connection
        if connection is None:
            return
        try:
            connection.pgconn.consume_input()
            while (note := connection.pgconn.notifies()) is not None:
                channel, payload = (text.decode(self._encoding, "replace") for text in (note.relname, note.extra))
                self._on_notification(channel, payload)
        except psycopg.Error:
            self._break()
            return
        if connection.closed:
            self._break()

    def _break(self) -> None:
        """Lose the session, and leave the route with it: the others may stand on the same broken ground."""
        self._lose()
        self._route.leave(self._generation)

    def _lose(self) -> None:
        self._unwatch()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()
            self._on_lost()


async def _in_time(connection: AsyncConnection, work: Coroutine[Any, Any, R]) -> R:
    """Wait for work on a connection; past the deadline end its stream, since psycopg would wait on.

    Raises DatabaseUnavailable in that case, and whatever the work raises.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=DEADLINE_S)
    finally:
        if not task.done():
            shut_down(connection.fileno())
            await asyncio.wait({task}, timeout=_CUT_S)
            task.cancel()
            task.add_done_callback(_seen)
    if not done:
        raise DatabaseUnavailable("no answer on the listening connection")
    return task.result()


def _call(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # Its loop has ended.
        loop.call_soon_threadsafe(work)


def _seen(task: asyncio.Task[Any]) -> None:
    """Look at how a task ended that nobody waits for, so that asyncio does not report it as forgotten."""
    if not task.cancelled():
        task.exception()
