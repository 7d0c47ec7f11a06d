"""Sources: what a worker claims from. Each queue has up to three.

::

    suspects   tasks whose process was lost the last time (losses > 0), of any name
    isolated   tasks whose handler runs in a process of its own
    ordinary   all others

Suspects and isolated tasks run in child processes, one at a time in each, so both are claimed
only while a child is free: a claimed task is a started task. They come first in a round,
because ordinary tasks would take every slot of a busy worker; the children bound how many slots
they can have. The suspects of all queues come before isolated tasks. The queues take turns:
one that got a child, or a slot, comes last the next time.

An ordinary claim leaves suspects alone. So a task that kills its process can take others down
with it once. From then on it can only kill its child, and the others end well in theirs. The
price is a look for suspects: one probe of an index that is nearly always empty, with each look
from the head, and once a second under load.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from pgtasks.engine.batches import BatchLimit
from pgtasks.engine.cursor import Cursor
from pgtasks.engine.intake import Intake
from pgtasks.store import looking, statements

SUSPECTS_S = 1.0


class Source(ABC):
    """One kind of task in one queue; ``room`` says how many of them could start now."""

    def __init__(self, queue: str, names: list[str], intake: Intake, room: Callable[[], int]) -> None:
        self.queue = queue
        self._names, self._intake, self._room = names, intake, room
        self._batch = BatchLimit()

    @property
    def full(self) -> bool:
        """Whether none of its tasks could start now."""
        return self._room() <= 0

    @property
    def limit(self) -> int:
        """How many tasks to claim at once now, at most."""
        return min(self._batch.tasks, self._room())

    @abstractmethod
    async def claim(self, limit: int, *, from_head: bool = False, briefly: bool = False) -> int:
        """Claim up to ``limit`` tasks in the cheapest way, or all over from the head; gives how many it took.

        ``briefly`` leaves it at the first ones found: there is another claim in a moment.
        """

    @abstractmethod
    async def look(self, limit: int) -> tuple[int, bool]:
        """Claim from the head if that may be done now; gives how many tasks, and whether it was done."""

    @abstractmethod
    def look_in_s(self, now: float) -> float:
        """Say in how many seconds ``look`` can do something."""


class Line(Source):
    """The tasks of some names, taken in their order behind a cursor."""

    def __init__(
        self, queue: str, names: list[str], intake: Intake, room: Callable[[], int], *, may_wait: bool = False
    ) -> None:
        """``may_wait`` where what a full claim brings may start after the next is sent: not where it needs a child."""
        super().__init__(queue, names, intake, room)
        self.cursor, self._may_wait = Cursor(), may_wait
        # What a claim from the lanes takes; what another takes beyond that is the walk over dead and foreign rows.
        self._usual_s = 0.0

    async def claim(self, limit: int, *, from_head: bool = False, briefly: bool = False) -> int:
        """Claim from the cursor, from the head when that is due, or both."""
        cursor, count, now = self.cursor, 0, time.monotonic()
        if not from_head and cursor.rests(now):
            return 0
        if not from_head and not cursor.head_first(now):
            count = await self._claim_from_cursor(limit)
            if count == limit or (count and briefly) or not cursor.rescan_due(time.monotonic()):
                return count
        return count + await self._rescan(limit - count)

    async def look(self, limit: int) -> tuple[int, bool]:
        """Claim from the head where that keeps within its share of the time, else from the cursor."""
        if self.cursor.rescan_in_s(time.monotonic()) > 0:
            return await self._claim_from_cursor(limit), False
        return await self._rescan(limit), True

    def look_in_s(self, now: float) -> float:
        """Say in how many seconds a look from the head, or the near one in its place, can be made."""
        return min(self.cursor.rescan_in_s(now), self.cursor.near_in_s(now))

    async def _claim_from_cursor(self, limit: int) -> int:
        cursor, intake = self.cursor, self._intake
        began = time.monotonic()
        near = cursor.near_due(began)
        if near or cursor.probe_due(began):
            known = [lane.priority for lane in cursor.lanes()]
            found = await intake.link.fetch_all(looking.new_lanes(self.queue, known, self._names))
            cursor.add_lanes(found, ended=time.monotonic())
        back = not near and cursor.back_due(began)
        lanes = cursor.near_lanes() if near else cursor.back_lanes(began) if back else cursor.lanes()
        if not lanes:
            return 0
        statement = statements.claim(
            self.queue, lanes, limit=limit, names=self._names, worker_id=intake.worker_id, lease_s=intake.lease_s
        )
        after_lease = None if near or back else cursor.follows()
        if after_lease is not None:
            statement = statements.follow(statement, after_lease)
        rows, took_s = await intake.take(self.queue, statement, self._batch, limit, may_wait=self._may_wait)
        intake.claims += 1
        full, ended = len(rows) >= limit, time.monotonic()
        if near:
            cursor.looked_near(rows, full=full, ended=ended, cost_s=max(0.0, ended - began - self._usual_s))
        elif back:
            cursor.looked_back(rows, full=full, ended=ended, cost_s=took_s - self._usual_s)
        else:
            self._usual_s += (took_s - self._usual_s) / (16 if self._usual_s else 1)
            cursor.claimed(rows, full=full, ended=ended)
        return len(rows)

    async def _rescan(self, limit: int) -> int:
        intake = self._intake
        began = await intake.database_now()
        statement = statements.rescan(
            self.queue, limit=limit, names=self._names, worker_id=intake.worker_id, lease_s=intake.lease_s
        )
        rows, took_s, look = await intake.look(self.queue, statement, self._batch, limit)
        intake.rescans += 1
        self.cursor.rescanned(
            rows,
            full=len(rows) >= limit,
            began=began,
            ended=time.monotonic(),
            cost_s=max(0.0, took_s - self._usual_s),
            is_paused=look.is_paused,
            alike=look.alike,
        )
        return len(rows)


class Suspects(Source):
    """The tasks whose process was lost; there are few, and each claim begins at the head."""

    _looked_at = float("-inf")
    # The last claim got all it asked for: there may be more.
    _more = False

    async def claim(self, limit: int, *, from_head: bool = False, briefly: bool = False) -> int:  # noqa: ARG002 - one claim is brief
        """Claim if that is due."""
        if not (from_head or self._more or time.monotonic() - self._looked_at >= SUSPECTS_S):
            return 0
        return await self._take(limit)

    async def look(self, limit: int) -> tuple[int, bool]:
        """Claim."""
        return await self._take(limit), True

    def look_in_s(self, now: float) -> float:  # noqa: ARG002 - as the other sources
        """Say that a look can be made at any time."""
        return 0.0

    async def _take(self, limit: int) -> int:
        intake = self._intake
        statement = statements.claim_suspects(
            self.queue, limit=limit, names=self._names, worker_id=intake.worker_id, lease_s=intake.lease_s
        )
        rows, _ = await intake.take(self.queue, statement, self._batch, limit)
        self._looked_at = time.monotonic()
        self._more = len(rows) >= limit
        return len(rows)


class Turns:
    """Whose turn it is to be claimed from."""

    def __init__(self, suspects: Sequence[Source], isolated: Sequence[Source], ordinary: Sequence[Source]) -> None:
        """Each holds one source per queue at most."""
        self._suspects, self._isolated, self._ordinary = list(suspects), list(isolated), list(ordinary)

    def sources(self, *, ordinary_first: bool = False) -> list[Source]:
        """Give all sources in their order; ``ordinary_first`` must not be so while others wait for their slots."""
        if ordinary_first:
            return [*self._ordinary, *self._suspects, *self._isolated]
        return [*self._suspects, *self._isolated, *self._ordinary]

    def is_ordinary(self, source: Source) -> bool:
        """Tell whether its tasks need no child process."""
        return source in self._ordinary

    def end(self, served: Sequence[Source]) -> None:
        """Put those that got something at the end, the first of them last: it had the choice."""
        for source in reversed(served):
            if source in self._ordinary:
                _to_the_end(self._ordinary, source.queue)
            else:
                _to_the_end(self._suspects, source.queue)
                _to_the_end(self._isolated, source.queue)


def _to_the_end(sources: list[Source], queue: str) -> None:
    sources.sort(key=lambda source: source.queue == queue)
