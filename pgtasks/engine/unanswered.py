"""Claims whose reply was lost: the tasks they took are given back.

The connection broke, or the answer came too late, after a claim was sent. If the database
executed it, tasks are leased to this worker that it never heard of. They would wait for the
lease to expire, and be charged an attempt. Instead the worker looks for leases of its own that
it does not know, and releases their tasks as an orderly stop does: no attempt charged.

The statement may still be running on the server when this side is connected again, and commit
after the first look. So there is more than one look, the last after the server's own
statement_timeout; what comes later still is left to the sweep. One claim is sent at a time,
so the looks end with the first that finds something.

A worker that ends has no time for that: it looks at once, and again for a fraction of a second.
"""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

from pgtasks import events
from pgtasks.store import statements
from pgtasks.store.link import Link

LOOKS_S = (0.0, 1.0, 4.0, 16.0)
LAST_LOOKS_S = (0.0, 0.05, 0.15)


class Unanswered:
    """The claims that were sent and not answered."""

    def __init__(self, link: Link, worker_id: UUID) -> None:
        self._link, self._worker_id = link, worker_id
        self._last_heard = 0
        self._after = 0
        self._known: list[int] = []
        self._looks_at: list[float] = []

    def heard(self, lease_id: int) -> None:
        """Note a lease that a claim was answered with."""
        self._last_heard = lease_id
        if self._looks_at:
            self._known.append(lease_id)

    def lost(self) -> None:
        """Note that a claim was sent and no answer came."""
        if not self._looks_at:
            self._after, self._known = self._last_heard, []
        now = time.monotonic()
        self._looks_at = [now + wait_s for wait_s in LOOKS_S]

    async def give_back(self) -> int:
        """Do the look that is due, if one is; gives the number of tasks given back.

        Raises DatabaseUnavailable; the look is then still due.
        """
        if not self._looks_at or time.monotonic() < self._looks_at[0]:
            return 0
        return await self._look()

    async def settle(self) -> None:
        """Do the last looks of a worker that ends; raises DatabaseUnavailable when they cannot be made."""
        for wait_s in LAST_LOOKS_S:
            if not self._looks_at:
                return
            await asyncio.sleep(wait_s)
            await self._look()

    async def _look(self) -> int:
        tasks = await self._link.fetch_all(statements.unanswered(self._worker_id, after=self._after, known=self._known))
        if tasks:
            emptied = sorted({lease_id for _, lease_id in tasks})
            await self._link.fetch_all(statements.release(self._worker_id, tasks, [0.0] * len(tasks), emptied))
            events.info("claim without an answer given back", tasks=len(tasks))
        # A failure of either statement, above, leaves this look where it is.
        self._looks_at = [] if tasks else self._looks_at[1:]
        return len(tasks)
