"""Connections whose statements end: with an answer, or at a deadline on this side.

A server that vanished is noticed by TCP within seconds (``conninfo``), but not everything that
says nothing is gone. A COMMIT that waits for a stalled standby, a pooler whose server died, a
proxy that swallows: there the connection is alive, and no time limit of PostgreSQL ends the wait.

psycopg's own way out does not serve here. It sends a cancel over a new connection, which may
hang as well, waits for it, and then waits for the answer once more: twelve seconds for a limit
of two. So a statement past its deadline takes its connection with it, at once, and so does one
whose asyncio task is cancelled.

What a statement did that was given up is unknown.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypeVar

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

# Above the server's own limit for a statement (``conninfo``), which says more about what happened.
DEADLINE_S = 12.0
# How often psycopg looks up from waiting.
_INTERVAL_S = 0.1

R = TypeVar("R")


class Unanswered(psycopg.OperationalError):
    """The server said nothing until the deadline, and the connection was given up."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"no answer within {limit_s:g} s, so the connection was given up; "
            "whether the server did what it was asked is unknown"
        )


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that waits ``deadline_s`` for each answer, without end when that is None."""

    deadline_s: float | None = DEADLINE_S

    def wait(self, gen: PQGen[R], interval: float = _INTERVAL_S, timeout: float | None = None) -> R:
        """Wait as psycopg does, but not past the deadline."""
        try:
            return super().wait(_until(gen, self.deadline_s), interval, **_given(timeout))
        except Unanswered:
            self.pgconn.finish()
            raise


class BoundedAsyncConnection(psycopg.AsyncConnection[Any]):
    """The same for asyncio; a task that is cancelled while it waits gives the connection up."""

    deadline_s: float | None = DEADLINE_S

    async def wait(self, gen: PQGen[R], interval: float = _INTERVAL_S, timeout: float | None = None) -> R:
        """Wait as psycopg does, but not past the deadline."""
        try:
            bounded = _until(gen, self.deadline_s)
            return await waiting.wait_async(bounded, self.pgconn.socket, interval=interval, **_given(timeout))
        except (asyncio.CancelledError, Unanswered):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise


def _given(timeout: float | None) -> dict[str, Any]:
    """Pass a limit on only when there is one: psycopg did not always have it."""
    return {} if timeout is None else {"timeout": timeout}


def _until(gen: PQGen[R], limit_s: float | None) -> PQGen[R]:
    """Pass a wait on; raises Unanswered when nothing came until the limit."""
    if limit_s is None:
        return (yield from gen)
    deadline = time.monotonic() + limit_s
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                raise Unanswered(limit_s)
            wanted = gen.send(ready)
    except StopIteration as ended:
        result: R = ended.value
        return result
