"""The claim cursor: where in the queue this worker's next claim begins.

Claimed and finished rows stay in the claim index as dead entries until vacuum, and vacuum
cannot remove them while any transaction in the database is older than they are. A claim that
begins at the head walks all of them; one that begins where the last one ended walks none.

State, per queue: a position (run_at, id) for each priority seen (a *lane*).

::

    claim from the cursors   rows come back: each lane moves to its last row
    claim from the head      ("rescan") the same, and lanes are found
    a short rescan at T      everything due before T that this worker can run was taken:
                             every lane moves to T - LAG, past what it cannot run

Why nothing is lost: whatever returns to the queue (retry, snooze, release, sweep) gets a
run_at of its new due time, later than any cursor; a delayed task sorts by its due time. What a
cursor can pass is a row that appears behind it: inserted early and committed late, given a
run_at in the past, or of a priority without a lane. The rescan finds those. It is due

* at once when a claim came back short (there is time then), and before falling asleep;
* every RESCAN_S under load;
* but never so often that it takes more than COST_FRACTION of the time: with dead entries that
  vacuum cannot remove, or a flood of names nobody knows, a rescan gets slow, and then rarer.

T is the database's clock, extrapolated from its last reading with this process's monotonic
clock and rounded down; LAG covers its error and short transactions. If the clock is set back,
rescans still find everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from pgtasks.model import Claimed
from pgtasks.store.statements import Lane

RESCAN_S = 0.5
SHORT_RESCAN_S = 0.05
COST_FRACTION = 0.05
LAG = timedelta(seconds=2)
LANES_MAX = 64
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_ID_MAX = 2**63 - 1


class Cursor:
    """The cursor of one queue."""

    def __init__(self) -> None:
        self._lanes: dict[int, tuple[datetime, int]] = {}
        self._rescanned_at = float("-inf")
        self._rescan_cost_s = 0.0

    def lanes(self) -> list[Lane]:
        """Give the lanes, highest priority first."""
        return [Lane(priority, *self._lanes[priority]) for priority in sorted(self._lanes, reverse=True)]

    def passed(self, rows: Iterable[Claimed]) -> None:
        """Move the lanes past claimed rows."""
        lanes = self._lanes
        for row in rows:
            position = (row.run_at, row.id)
            if position > lanes.get(row.priority, (_BEGINNING, 0)):
                lanes[row.priority] = position
        while len(lanes) > LANES_MAX:
            # A priority without a lane is served by rescans.
            del lanes[min(lanes, key=lanes.__getitem__)]

    def rescanned(self, at: float, cost_s: float) -> None:
        """Note a rescan that ended at ``at`` (monotonic) and what the walk cost."""
        self._rescanned_at = at
        self._rescan_cost_s = cost_s

    def clean_at(self, instant: datetime) -> None:
        """Note that a rescan, begun at ``instant`` by the database's clock, came back short."""
        position = (instant - LAG, _ID_MAX)
        if not self._lanes:
            self._lanes[0] = position
        for priority, old in self._lanes.items():
            self._lanes[priority] = max(old, position)

    def rescan_due(self, now: float, *, short: bool) -> bool:
        """Tell whether a rescan is due at ``now`` (monotonic), after a short claim or under load."""
        if not self._lanes:
            return self.rescan_allowed(now)
        wait_s = SHORT_RESCAN_S if short else RESCAN_S
        return now - self._rescanned_at >= wait_s and self.rescan_allowed(now)

    def rescan_allowed(self, now: float) -> bool:
        """Tell whether a rescan at ``now`` keeps within its share of the time."""
        return now - self._rescanned_at >= self._rescan_cost_s / COST_FRACTION
