"""The intake: sends a claim, and starts what it brings."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from pgtasks.engine.ahead import Ahead
from pgtasks.engine.batches import BatchLimit
from pgtasks.engine.cursor import claim_order
from pgtasks.engine.executor import Executor
from pgtasks.engine.leases import Leases
from pgtasks.engine.meter import Meter
from pgtasks.engine.unanswered import Unanswered
from pgtasks.errors import DatabaseError, DatabaseUnavailable
from pgtasks.model import Claimed, Look, tasks_of
from pgtasks.store import statements
from pgtasks.store.link import Link
from pgtasks.store.session import Statement, is_about_time

R = TypeVar("R")

CLOCK_READ_S = 30.0


class Intake:
    """Takes tasks into this worker; one claim at a time."""

    def __init__(
        self,
        link: Link,
        worker_id: UUID,
        lease_s: float,
        *,
        leases: Leases,
        executor: Executor,
        ahead: Ahead,
        meter: Meter | None = None,
    ) -> None:
        self.link, self.worker_id, self.lease_s = link, worker_id, lease_s
        self._leases, self._executor, self._ahead, self._meter = leases, executor, ahead, meter
        self.unanswered = Unanswered(link, worker_id)
        self._clock: tuple[datetime, float] | None = None
        self.found_at = time.monotonic()
        self.claims = 0
        self.rescans = 0

    async def take(
        self, queue: str, statement: Statement[Claimed], batch: BatchLimit, limit: int, *, may_wait: bool = False
    ) -> tuple[list[Claimed], float]:
        """Run a claim and start what it brings; gives the tasks, in claim order, and the seconds it took.

        What brought all that was asked for ``may_wait`` until the next claim is sent, where this worker claims ahead.
        """
        sent_at = time.monotonic()
        rows = await self._ask(statement, batch, limit)
        took_s = time.monotonic() - sent_at
        self._start(queue, rows, batch, sent_at, took_s, soon=may_wait and self._ahead.on and len(rows) >= limit)
        return rows, took_s

    async def look(
        self, queue: str, statement: Statement[Look], batch: BatchLimit, limit: int
    ) -> tuple[list[Claimed], float, Look]:
        """Run a claim from the head as ``take`` does; gives one of the rows as well, for what it says of the queue."""
        sent_at = time.monotonic()
        seen = await self._ask(statement, batch, limit)
        took_s = time.monotonic() - sent_at
        rows = tasks_of(seen)
        self._start(queue, rows, batch, sent_at, took_s)
        return rows, took_s, seen[0]

    async def _ask(self, statement: Statement[R], batch: BatchLimit, limit: int) -> list[R]:
        try:
            return await self.link.fetch_all(statement)
        except BaseException as error:
            # Also when this worker stops waiting, because it is told to end.
            self.unanswered.lost()
            # The next server may be another one, with another clock.
            self._clock = None
            if isinstance(error, DatabaseError) and is_about_time(error):
                batch.timed_out(limit)
            raise

    def _start(
        self, queue: str, rows: list[Claimed], batch: BatchLimit, sent_at: float, took_s: float, *, soon: bool = False
    ) -> None:
        """Start what a claim brought, which puts ``rows`` into claim order."""
        if self._meter is not None:
            self._meter.claim_times.add(took_s)
        if rows:
            batch.answered(rows, took_s)
            rows.sort(key=claim_order)
            self.found_at = time.monotonic()
            self.unanswered.heard(rows[0].lease_id)
            self._leases.add(rows[0].lease_id, len(rows), sent_at)
            self._executor.start(queue, rows, soon=soon)
            if self._meter is not None:
                self._meter.count_claimed(queue, rows, self._extrapolated())

    async def database_now(self) -> datetime:
        """Give the database's time, rounded down: read now and then, extrapolated in between."""
        if self._clock is None or time.monotonic() - self._clock[1] > CLOCK_READ_S:
            read = await self.link.fetch_one(statements.clock())
            if read is None:
                raise DatabaseUnavailable("the database's clock could not be read")
            self._clock = (read, time.monotonic())
        return self._extrapolated() or self._clock[0]

    def _extrapolated(self) -> datetime | None:
        """Give the database's time without asking it, None while that is not known."""
        return self._clock and self._clock[0] + timedelta(seconds=time.monotonic() - self._clock[1])
