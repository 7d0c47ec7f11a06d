"""What every worker does for all, without a leader: sweeping expired leases, tidying up."""

from __future__ import annotations

import random

from pgtasks import events
from pgtasks.engine.heartbeat import SweepWindow
from pgtasks.errors import DatabaseError
from pgtasks.store import scheduling, statements
from pgtasks.store.link import Link
from pgtasks.store.session import is_about_statement

SWEEP_LEASES_MAX = 50
PARTITION_DAYS_AHEAD = 3
TIDY_S = 300.0
TIDY_AGAIN_S = 60.0
# Longer than history is kept: a fire says that its slot is done, whatever became of the task.
FIRES_KEEP_DAYS = 30
FIRES_BATCH = 5000


class Sweeper:
    """Gives the tasks of expired leases back to the queue."""

    def __init__(self, link: Link, window: SweepWindow, interval_s: float, rng: random.Random) -> None:
        self._link, self._window, self._interval_s, self._rng = link, window, interval_s, rng
        self.swept = 0

    async def sweep(self) -> float:
        """Do one round; says when to come back: at once when there was a full batch."""
        fresh_until = self._window.fresh_until()
        if fresh_until is None:
            return min(self._interval_s, 0.2)
        swept = await self._link.fetch_one(statements.sweep(fresh_until, limit=SWEEP_LEASES_MAX))
        if swept is not None and swept.leases:
            taken = swept.requeued + swept.dead + swept.cancelled
            self.swept += taken
            if taken:
                events.warning(
                    "expired leases swept",
                    leases=swept.leases,
                    requeued=swept.requeued,
                    dead=swept.dead,
                    cancelled=swept.cancelled,
                )
            if swept.closed >= SWEEP_LEASES_MAX:
                return 0.0  # There may be more.
        return self._interval_s * (0.8 + 0.2 * self._rng.random())


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

    async def _prune_fires(self) -> None:
        """Forget old fires in bounded batches, each a transaction of its own."""
        while (
            await self._link.fetch_one(scheduling.prune_fires(keep_days=FIRES_KEEP_DAYS, limit=FIRES_BATCH))
        ) == FIRES_BATCH:
            pass

    async def tidy(self) -> float:
        """Do one round; says when to come back."""
        try:
            made = await self._link.fetch_one(statements.create_partitions(PARTITION_DAYS_AHEAD))
            if made:
                events.info("partitions created", count=made)
            delay_s = TIDY_S
        except DatabaseError as error:
            if not is_about_statement(error):
                raise
            # Somebody reads the default partition just now, or has no right to let us. Rows go
            # there meanwhile; nothing is lost, and nobody need wait for it.
            events.warning("partitions not created", error=str(error).splitlines()[0])
            delay_s = TIDY_AGAIN_S
        await self._link.fetch_all(statements.prune_workers())
        await self._prune_fires()
        return delay_s * (0.8 + 0.4 * self._rng.random())
