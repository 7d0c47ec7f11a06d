"""The claim cursor: where in the queue this worker's next claim begins.

Claimed and finished rows stay in the claim index as dead entries until vacuum, and vacuum
cannot remove them while any transaction in the database is older than they are. A claim that
begins at the head walks all of them; one that begins where the last one ended walks none.

State, per queue: a position (run_at, id) for each priority seen (a *lane*).

::

    claim from the cursors   each lane moves forward to its last row
    claim from the head      ("rescan") the same, and lanes are found; and
      it came back full      the lane it stopped in moves to its last row, also backward:
                             what lies right behind that row has not been looked at
      it came back short     everything due before T that this worker can run was taken:
                             every lane moves up to T - LAG, past what it cannot run

A lane that stands too far back costs a longer walk, nothing else. A row is *passed* when it
appears behind its lane. That cannot happen to what returns to the queue with a delay, nor to a
delayed task: they sort by their due time, and no lane is ahead of the clock. It can happen to

* a row whose transaction took longer than it took a later row to be claimed (a bulk insert;
  a retry without delay, for a moment),
* a run_at given in the past,
* a priority without a lane,
* a queue that was paused: rescans came back short, although tasks were there,
* everything, when the database's clock was set back.

The rescan finds those, and if it finds a whole batch of them the lane goes back there, so that
a million rows that were passed are claimed as fast as any others. It is due

* SHORT_RESCAN_S after the last one when a claim came back short, and before falling asleep;
* RESCAN_S after the last one under load;
* but never so often that it takes more than COST_FRACTION of the time: with dead entries that
  vacuum cannot remove, or a flood of names nobody knows, a rescan gets slow, and then rarer
  (the cheaper of the last two counts, so that one hiccup of the server is forgiven).

T is the database's clock, extrapolated from its last reading with this process's monotonic
clock and rounded down; LAG covers its error and short transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from pgtasks.model import Claimed
from pgtasks.store.statements import Lane

RESCAN_S = 0.5
SHORT_RESCAN_S = 0.05
COST_FRACTION = 0.05
# However slow rescans are, this is the longest that a passed row waits for the next one.
RESCAN_S_MAX = 30.0
LAG = timedelta(seconds=2)
LANES_MAX = 64
_BEGINNING = (datetime(1970, 1, 1, tzinfo=UTC), 0)
_ID_MAX = 2**63 - 1


def claim_order(task: Claimed) -> tuple[int, datetime, int]:
    """Say where a task stands in its queue, as a key to sort by."""
    return -task.priority, task.run_at, task.id


class Cursor:
    """The cursor of one queue."""

    def __init__(self) -> None:
        self._lanes: dict[int, tuple[datetime, int]] = {}
        self._rescanned_at = float("-inf")
        self._costs_s = (0.0, 0.0)
        # The last claim got all it asked for: there is a backlog.
        self.busy = False

    def lanes(self) -> list[Lane]:
        """Give the lanes, highest priority first."""
        return [Lane(priority, *self._lanes[priority]) for priority in sorted(self._lanes, reverse=True)]

    def claimed(self, rows: Sequence[Claimed], *, full: bool) -> None:
        """Note the rows of a claim from the cursors, in claim order."""
        self.busy = full
        self._pass(rows)

    def rescanned(self, rows: Sequence[Claimed], *, full: bool, began: datetime, ended: float, cost_s: float) -> None:
        """Note the rows of a claim from the head, in claim order.

        ``began`` is the database's clock, ``ended`` the monotonic one; ``cost_s`` is what the
        walk took beyond an ordinary claim.
        """
        self.busy = full
        self._rescanned_at = ended
        self._costs_s = (self._costs_s[1], cost_s)
        if full and rows:
            self._lanes.pop(rows[-1].priority, None)
        self._pass(rows)
        if not full:
            self._catch_up(began)

    def _pass(self, rows: Iterable[Claimed]) -> None:
        lanes = self._lanes
        for priority, last in {row.priority: row for row in rows}.items():
            lanes[priority] = max(lanes.get(priority, _BEGINNING), (last.run_at, last.id))
        while len(lanes) > LANES_MAX:
            # A priority without a lane is served by rescans.
            del lanes[min(lanes, key=lanes.__getitem__)]

    def _catch_up(self, began: datetime) -> None:
        position = (began - LAG, _ID_MAX)
        if not self._lanes:
            self._lanes[0] = position
        for priority, old in self._lanes.items():
            # A lane ahead of the clock has been left there by a clock that was set back.
            self._lanes[priority] = position if old[0] > began + LAG else max(old, position)

    def rescan_due(self, now: float) -> bool:
        """Tell whether a rescan is due at ``now`` (monotonic)."""
        wait_s = RESCAN_S if self.busy else SHORT_RESCAN_S
        return self.rescan_in_s(now) <= 0 and (not self._lanes or now - self._rescanned_at >= wait_s)

    def rescan_in_s(self, now: float) -> float:
        """Say in how many seconds a rescan keeps within its share of the time; 0 for now."""
        wait_s = min(RESCAN_S_MAX, min(self._costs_s) / COST_FRACTION)
        return max(0.0, self._rescanned_at + wait_s - now)
