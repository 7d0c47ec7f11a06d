"""What every worker does for all, without a leader: sweeping expired leases, tidying up."""

from __future__ import annotations

import random
import time

from pgtasks import events
from pgtasks.engine.heartbeat import SweepWindow
from pgtasks.errors import DatabaseError
from pgtasks.store import statements
from pgtasks.store.link import Link
from pgtasks.store.session import is_about_data, is_about_rights, is_about_server, is_about_statement
from pgtasks.store.statements import Swept

SWEEP_LEASES_MAX = 50
PARTITION_DAYS_AHEAD = 3
TIDY_S = 300.0
# How long a lease that cannot be swept is left out, and how many are remembered.
LEFT_OUT_S_MIN, LEFT_OUT_S_MAX = 60.0, 600.0
REFUSED_MAX = 10_000
TIDY_AGAIN_S = 60.0


class Sweeper:
    """Gives the tasks of expired leases back to the queue.

    A row that cannot be changed or deleted (a foreign key of the user's, a trigger that raises)
    fails the statement for all. Then each lease is swept by itself, and one that fails in halves
    of its tasks, so that only what cannot be swept stays; its lease is left out for a while.
    """

    def __init__(self, link: Link, window: SweepWindow, interval_s: float, rng: random.Random) -> None:
        self._link, self._window, self._interval_s, self._rng = link, window, interval_s, rng
        self._refused = Refused()
        self._failures = 0
        self.swept = 0

    async def sweep(self) -> float:
        """Do one round; says when to come back: at once when there was a full batch."""
        fresh_until = self._window.fresh_until()
        if fresh_until is None:
            return min(self._interval_s, 0.2)
        left_out = self._refused.left_out(time.monotonic())
        try:
            swept = await self._link.fetch_one(
                statements.sweep(fresh_until, limit=SWEEP_LEASES_MAX, skip_leases=left_out)
            )
        except DatabaseError as error:
            self._failures += 1
            if is_about_server(error) or not (is_about_data(error) or self._failures > 1):
                raise
            more = await self._sweep_one_by_one(left_out)
        else:
            more = swept is not None and swept.closed >= SWEEP_LEASES_MAX
            self._note(swept)
        self._failures = 0
        return 0.0 if more else self._interval_s * (0.8 + 0.2 * self._rng.random())

    def _note(self, swept: Swept | None) -> None:
        taken = swept.requeued + swept.dead + swept.cancelled if swept is not None else 0
        self.swept += taken
        if swept is not None and taken:
            events.warning(
                "expired leases swept",
                leases=swept.leases,
                requeued=swept.requeued,
                dead=swept.dead,
                cancelled=swept.cancelled,
            )

    async def _sweep_one_by_one(self, left_out: list[int]) -> bool:
        """Sweep lease by lease; tells whether some lease was found that failed, so the others may go on."""
        found = False
        for lease in await self._link.fetch_all(statements.list_expired(limit=SWEEP_LEASES_MAX, skip_leases=left_out)):
            refused = await self._sweep_lease(lease.id, lease.task_ids)
            if refused is None:
                continue
            found = True
            if self._refused.add(lease.id, time.monotonic()):
                error, task_ids = refused
                events.error(
                    "expired lease cannot be swept",
                    lease=lease.id,
                    tasks=task_ids[:10],
                    count=len(task_ids),
                    error=str(error).splitlines()[0],
                    advice="tried again later; look for a foreign key or a trigger on pgtasks.tasks",
                )
        return found

    async def _sweep_lease(self, lease_id: int, task_ids: list[int]) -> tuple[DatabaseError, list[int]] | None:
        """Sweep all of a lease that can be swept; gives the error and the tasks that failed, if any did."""
        parts, refused, last = [task_ids], list[int](), None
        while parts:
            part = parts.pop()
            fresh_until = self._window.fresh_until()
            if fresh_until is None:
                break
            try:
                statement = statements.sweep(fresh_until, limit=1, lease_id=lease_id, task_ids=part)
                swept = await self._link.fetch_one(statement)
            except DatabaseError as error:
                if is_about_server(error):
                    raise
                if len(part) > 1:
                    parts += [part[len(part) // 2 :], part[: len(part) // 2]]
                else:
                    last = error
                    refused += part
            else:
                self._note(swept)
        return (last, refused) if last is not None else None


class Refused:
    """The leases that could not be swept whole, each left out for a time that doubles."""

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}
        self._until: dict[int, float] = {}

    def left_out(self, now: float) -> list[int]:
        """Give the leases that are not to be tried now."""
        return [lease_id for lease_id, until in self._until.items() if now < until]

    def add(self, lease_id: int, now: float) -> bool:
        """Note that a lease failed; tells whether this is the first time."""
        failures = self._failures.pop(lease_id, 0)
        self._failures[lease_id] = failures + 1
        self._until[lease_id] = now + min(LEFT_OUT_S_MAX, LEFT_OUT_S_MIN * 2.0 ** min(failures, 16))
        if len(self._failures) > REFUSED_MAX:
            # The one whose last try is the longest ago.
            oldest = next(iter(self._failures))
            del self._failures[oldest], self._until[oldest]
        return not failures


class Tidier:
    """Creates partitions ahead of time and forgets workers that are long gone."""

    def __init__(self, link: Link, rng: random.Random) -> None:
        self._link, self._rng = link, rng
        self._first = True

    async def tidy_later(self) -> float:
        """Do one round, but not in the first: a worker tidies up before it starts."""
        if self._first:
            self._first = False
            return TIDY_S * (0.8 + 0.4 * self._rng.random())
        return await self.tidy()

    async def tidy(self) -> float:
        """Do one round; says when to come back."""
        try:
            made = await self._link.fetch_one(statements.create_partitions(PARTITION_DAYS_AHEAD))
            if made:
                events.info("partitions created", count=made)
            delay_s = TIDY_S
        except DatabaseError as error:
            if not (is_about_statement(error) or is_about_rights(error)):
                raise
            # Somebody reads the default partition just now, or has no right to let us. Rows go
            # there meanwhile; nothing is lost, and nobody need wait for it.
            events.warning("partitions not created", error=str(error).splitlines()[0])
            delay_s = TIDY_AGAIN_S
        await self._link.fetch_all(statements.prune_workers())
        return delay_s * (0.8 + 0.4 * self._rng.random())
