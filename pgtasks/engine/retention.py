"""What goes when it is old: history, failed attempts, and the records of fires.

Every worker does it, without a leader: one day's partition, or one bounded batch of rows, per
transaction, until nothing old is left. A worker that is killed in between leaves the rest to the
next. Nothing here waits for a lock longer than a moment, and claims never wait for it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from pgtasks import events
from pgtasks.errors import DatabaseError
from pgtasks.store import retention, scheduling
from pgtasks.store.link import Link
from pgtasks.store.session import is_about_rights, is_about_statement

PRUNE_S = 600.0
PRUNE_AGAIN_S = 30.0
# Between two batches others get their turn at the connection and the disk.
BREATH_S = 0.05
# A fire says that its slot is done, whatever became of the task: kept longer than history.
FIRES_KEEP_DAYS_MIN = 30
FIRES_BATCH = 5000
_DAY_S = 86400.0


class Pruner:
    """Removes what is older than this worker keeps; ``keep_s`` 0 keeps history for ever.

    Fires go through ``schedules``, the scheduler's link where this worker has one: whoever has locked the
    tables of schedules stops that one, and not the completions.
    """

    def __init__(self, link: Link, schedules: Link, keep_s: float, rng: random.Random) -> None:
        self._link, self._schedules, self._keep_s, self._rng = link, schedules, keep_s, rng
        self._first = True

    async def prune(self) -> float:
        """Do one round; says when to come back."""
        if self._first:
            # Not as one of the first things of a worker that may live for seconds only.
            self._first = False
            return PRUNE_AGAIN_S * self._rng.random()
        delays_s = [await self._tried("history", self._prune_history), await self._tried("fires", self._prune_fires)]
        return min(delays_s) * (0.8 + 0.4 * self._rng.random())

    async def _tried(self, what: str, step: Callable[[], Awaitable[None]]) -> float:
        """Do a step if that can be done now; says when it is to be done again."""
        try:
            await step()
        except DatabaseError as error:
            if is_about_rights(error):
                delay_s = PRUNE_S
            elif is_about_statement(error):
                # Somebody reads that day, or holds those rows, just now.
                delay_s = PRUNE_AGAIN_S
            else:
                raise
            events.warning(f"{what} not pruned", error=str(error).splitlines()[0])
            return delay_s
        return PRUNE_S

    async def _prune_history(self) -> None:
        partitions = rows = 0
        while self._keep_s:
            pruned = await self._link.fetch_one(retention.prune(keep_s=self._keep_s))
            if pruned is None or not any(pruned):
                break
            partitions, rows = partitions + pruned.partitions, rows + pruned.rows
            await asyncio.sleep(BREATH_S)
        if partitions or rows:
            events.info("history pruned", partitions=partitions, rows=rows)

    async def _prune_fires(self) -> None:
        """Forget old fires in bounded batches, each a transaction of its own."""
        keep_days = max(FIRES_KEEP_DAYS_MIN, int(self._keep_s / _DAY_S) + 1)
        pruned: int | None = FIRES_BATCH
        while pruned == FIRES_BATCH:
            pruned = await self._schedules.fetch_one(scheduling.prune_fires(keep_days=keep_days, limit=FIRES_BATCH))
            await asyncio.sleep(BREATH_S)
