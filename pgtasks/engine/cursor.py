"""The claim cursor: where in the queue this worker's next claim begins.

Claimed and finished rows stay in the claim index as dead entries until vacuum, and vacuum
cannot remove them while any transaction in the database is older than they are. A claim that
begins at the head walks all of them; one that begins where the last one ended walks none, and one
that looks back a second (``trail``) those of that second.

State, per queue: a position (run_at, id) for each priority seen (a *lane*).

::

    claim from the cursors   each lane moves forward to its last row
    claim from the head      ("rescan") the same, and lanes are found
      it came back short     everything due before T that this worker can run was taken:
                             every lane moves up to T - LAG, past what it cannot run
      the queue is paused    nothing was taken: the lanes stay, and the next claim is from the head again
    any claim came back full the lane it stopped in moves to its last row, also backward:
                             what lies right behind that row has not been looked at

A lane that stands too far back costs a longer walk, nothing else. A row is *passed* when it
appears behind its lane. That cannot happen to what returns to the queue with a delay, nor to a
delayed task: they sort by their due time, and no lane is ahead of the clock. It can happen to

* a row whose transaction took longer than it took a later row to be claimed (a bulk insert;
  a retry without delay, for a moment),
* a run_at given in the past,
* a priority without a lane,
* everything, when the database's clock was set back.

While the worker keeps up, a claim that looks back finds the first kind up to a second late. The rescan
finds all, and if it finds a whole batch of them the lane goes back there, so that a million rows that
were passed are claimed as fast as any others. It is due

* SHORT_RESCAN_S after the last one when a claim came back short, and before falling asleep;
* RESCAN_S after the last one under load, or SHARED_RESCAN_S while others claim as well (the ids of
  leases, which all claims take from one sequence, tell). Workers with the same handlers take turns, as what was
  passed needs to be found by one: where ten of them claim, each looks every 5 s, at random between half of that and
  one and a half, and one of them twice a second. For each to walk all that is dead in the queue each 0.9 s cost a
  tenth of two cores. More than that they do not wait for each other (TURN_S_MAX), because only the one that finds
  something knows that there is more of it, and some of them may be full. And for priorities without a lane each
  probes every SHARED_RESCAN_S as a near look does (see below);
* but never so often that it takes more than COST_FRACTION of the time: with dead entries that
  vacuum cannot remove, or a flood of names nobody knows, a rescan gets slow, and then rarer
  (the cheaper of the last two counts, so that one hiccup of the server is forgiven). One that
  takes 0.5 s is due every 10 s; RESCAN_S_MAX is the longest. With a backlog the share is BUSY_COST_FRACTION.

With a backlog, workers with the same handlers follow each other: a claim begins behind what the others claimed
since this worker's last one (tasks_follow.sql) where that is about FOLLOWED_MIN tasks or more (by the leases
between its last two claims, as if each were as large as its own). A worker of which a lane went back to what
had been passed follows nobody until that lane is where it was: others may not have gone back, or not as far, and it
would leave what it went back for. A worker that was just started learns that something was passed only by its
second look from the head.

While rescans are rarer than RESCAN_S because of what they cost, a *near look* takes their place, each RESCAN_S
(of workers alike: in turns, but each NEAR_S / 2 at least) within a budget of its own, as large:

* a claim that starts where the lanes stood NEAR_S ago: it walks the dead entries of those
  seconds only, and finds what was committed up to that much late;
* before it, a probe of the gaps between the lanes for priorities without one, which never
  enters a lane and so walks none of its dead entries. What it finds gets a lane.

So a late commit (up to NEAR_S) and a new priority wait for about RESCAN_S also then. What else
can be passed (a transaction longer than NEAR_S, a run_at given in the past, a priority of which the
first 100 rows are nothing this worker can run) waits for the rescan: RESCAN_S_MAX at most.

T is the database's clock, extrapolated from its last reading with this process's monotonic
clock and rounded down; LAG covers its error and short transactions.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from pgtasks.engine.trail import Positions, Trail
from pgtasks.model import Claimed
from pgtasks.store.statements import Lane

RESCAN_S = 0.5
# While looks are cheap, nothing that a cursor passed waits for longer than a second for a worker that has no equal.
SHARED_RESCAN_S = 0.9
# A queue is shared from so many workers on; the last claim counts as so much of the mean.
SHARED_MIN, SHARERS_WEIGHT = 1.1, 0.125
TURN_S_MAX = 5.0
SHORT_RESCAN_S = 0.05
# What of a worker's time looks from the head, and near ones, may take; a busy one has less to spare.
COST_FRACTION, BUSY_COST_FRACTION = 0.05, 0.02
NEAR_S = 5.0
# However slow rescans are, this is the longest that a passed row waits for the next one.
RESCAN_S_MAX = 30.0
LAG = timedelta(seconds=2)
LANES_MAX = 64
# To walk over so many tasks takes a claim 0.3 ms; to ask where the front is, a fifth of that.
FOLLOWED_MIN = 1000
_BEGINNING = (datetime(1970, 1, 1, tzinfo=UTC), 0)
_ID_MAX = 2**63 - 1


def claim_order(task: Claimed) -> tuple[int, datetime, int]:
    """Say where a task stands in its queue, as a key to sort by."""
    return -task.priority, task.run_at, task.id


class Cursor:
    """The cursor of one queue."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._lanes: dict[int, tuple[datetime, int]] = {}
        self._rescanned_at = float("-inf")
        self._costs_s = (0.0, 0.0)
        self._near_at = float("-inf")
        self._near_cost_s = 0.0
        # Where the lanes stood, with the monotonic time, oldest first; one more than NEAR_S old is kept.
        self._stood: deque[tuple[float, dict[int, tuple[datetime, int]]]] = deque()
        self._trail = Trail()
        # The last claim got all it asked for: there is a backlog.
        self.busy = False
        # The lease of the last claim.
        self._lease_id = 0
        # How many workers claim, if all claim as often as this one, by the leases between its own: the mean of the last
        # claims, as two of its own may follow each other at once. And about how many tasks others got between the last.
        self._sharers, self._others = 1.0, 0.0
        # How many workers with the same handlers the last look saw, if it was full, and how much of a turn to wait.
        self._alike, self._jitter = 0, 1.0
        # The last look found the queue paused, and nothing has been claimed since.
        self._is_paused = False
        self._probed_at = float("-inf")
        # Where lanes stood, at most, that went back to what had been passed, until they are there again.
        self._returning: dict[int, tuple[datetime, int]] = {}

    def lanes(self) -> list[Lane]:
        """Give the lanes, highest priority first."""
        return [Lane(priority, *self._lanes[priority]) for priority in sorted(self._lanes, reverse=True)]

    def follows(self) -> int | None:
        """Give the lease after which others are to be followed by the next claim; None to begin at the cursor.

        Nobody is followed where to walk costs less than to ask, nor while a lane is on its way back.
        """
        follows = self.busy and self._others >= FOLLOWED_MIN and not self._returning
        return self._lease_id if follows else None

    def claimed(self, rows: Sequence[Claimed], *, full: bool, ended: float) -> None:
        """Note the rows of a claim from the lanes that ``ended`` then (monotonic), in claim order."""
        self._trail.went_on()
        self._take(rows, full=full, ended=ended)
        self._remember(ended)

    def back_due(self, now: float) -> bool:
        """Tell whether the claim at ``now`` (monotonic) should look back: there is no backlog, and it costs little."""
        return not self.busy and self._trail.is_due(now)

    def back_lanes(self, now: float) -> list[Lane]:
        """Give the lanes as they stood a moment ago."""
        return self._behind(self._trail.back(now))

    def looked_back(self, rows: Sequence[Claimed], *, full: bool, ended: float, cost_s: float) -> None:
        """Note the rows of a claim from ``back_lanes``, in claim order; ``cost_s`` may be below 0 by chance."""
        self._trail.looked(ended, cost_s)
        self._take(rows, full=full, ended=ended)
        self._remember(ended)

    def rescanned(
        self,
        rows: Sequence[Claimed],
        *,
        full: bool,
        began: datetime,
        ended: float,
        cost_s: float,
        is_paused: bool = False,
        alike: int = 0,
    ) -> None:
        """Note the rows of a claim from the head, in claim order.

        ``began`` is the database's clock, ``ended`` the monotonic one; ``cost_s`` is what the
        walk took beyond an ordinary claim. ``is_paused`` and ``alike`` are as in ``Look``.
        """
        self._rescanned_at, self._is_paused = ended, is_paused
        self._costs_s = (self._costs_s[1], cost_s)
        self._take(rows, full=full, ended=ended)
        self._alike, self._jitter = alike, 0.5 + self._rng.random()
        if is_paused:
            self._lanes = self._lanes or {0: _BEGINNING}
        elif not full:
            self._catch_up(began)
        self._remember(ended)

    def looked_near(self, rows: Sequence[Claimed], *, full: bool, ended: float, cost_s: float) -> None:
        """Note the rows of a claim from ``near_lanes``, in claim order; times as in ``rescanned``."""
        self._near_at, self._near_cost_s = ended, cost_s
        self._take(rows, full=full, ended=ended)
        self._remember(ended)

    def add_lanes(self, found: Iterable[Lane], *, ended: float) -> None:
        """Add lanes for priorities that had none, which a probe found that ended then."""
        self._probed_at = ended
        for lane in found:
            self._lanes.setdefault(lane.priority, (lane.run_at, lane.id))
        self._limit_lanes()

    def _take(self, rows: Sequence[Claimed], *, full: bool, ended: float) -> None:
        self.busy = full
        if rows and self._is_paused:
            # Resumed, and found so from the cursor, as looks are dear: priorities may have come that have no lane.
            self._is_paused, self._rescanned_at = False, float("-inf")
        stood = {row.priority: self._lanes[row.priority] for row in rows if row.priority in self._lanes}
        self._trail.leave(ended, stood)
        if full and rows:
            self._go_back(rows[-1])
        self._pass(rows)
        self._returning = {
            lane: place for lane, place in self._returning.items() if self._lanes.get(lane, place) < place
        }

    def _go_back(self, last: Claimed) -> None:
        stood = self._lanes.pop(last.priority, None)
        if stood is not None and (last.run_at, last.id) < stood:
            self._returning[last.priority] = max(stood, self._returning.get(last.priority, stood))

    def _remember(self, now: float) -> None:
        if not self._stood or now - self._stood[-1][0] >= RESCAN_S:
            self._stood.append((now, dict(self._lanes)))
        while len(self._stood) > 1 and now - self._stood[1][0] >= NEAR_S:
            self._stood.popleft()

    def _pass(self, rows: Sequence[Claimed]) -> None:
        if rows:
            between = rows[0].lease_id - self._lease_id - 1 if self._lease_id else 0
            self._sharers += (max(between, 0) + 1 - self._sharers) * SHARERS_WEIGHT
            self._others = (self._sharers - 1) * len(rows)
            self._lease_id = rows[0].lease_id
        lanes = self._lanes
        for priority, last in {row.priority: row for row in rows}.items():
            lanes[priority] = max(lanes.get(priority, _BEGINNING), (last.run_at, last.id))
        self._limit_lanes()

    def _limit_lanes(self) -> None:
        while len(self._lanes) > LANES_MAX:
            # A priority without a lane is served by rescans.
            del self._lanes[min(self._lanes, key=self._lanes.__getitem__)]

    def _catch_up(self, began: datetime) -> None:
        position = (began - LAG, _ID_MAX)
        self._returning.clear()
        if not self._lanes:
            self._lanes[0] = position
        for priority, old in self._lanes.items():
            # A lane ahead of the clock has been left there by a clock that was set back.
            self._lanes[priority] = position if old[0] > began + LAG else max(old, position)

    def rests(self, now: float) -> bool:
        """Tell whether to ask for nothing at ``now``: the queue was paused a moment ago, and the next look is due soon.

        A claim from the cursor could find it resumed, and would leave priorities that have no lane for later.
        """
        return self._is_paused and self.rescan_in_s(now) <= 0 and not self.rescan_due(now)

    def head_first(self, now: float) -> bool:
        """Tell whether a rescan is due at ``now`` in place of a claim from the cursor, not after it.

        Where there is a backlog, and where the queue was paused: a priority may have come that has no lane.
        """
        return (self.busy or self._is_paused) and self.rescan_due(now)

    def rescan_due(self, now: float) -> bool:
        """Tell whether a rescan is due at ``now`` (monotonic)."""
        wait_s = self._turn_s() if self.busy else SHORT_RESCAN_S
        return self.rescan_in_s(now) <= 0 and (not self._lanes or now - self._rescanned_at >= wait_s)

    def probe_due(self, now: float) -> bool:
        """Tell whether to ask for priorities without a lane at ``now``, because others have the turn to look."""
        asked_at = max(self._rescanned_at, self._near_at, self._probed_at)
        return self._turn_s() > SHARED_RESCAN_S <= now - asked_at

    def near_due(self, now: float) -> bool:
        """Tell whether a near look is due at ``now``, in place of a rescan that has to wait."""
        return bool(self._lanes) and self.rescan_in_s(now) > 0 and self.near_in_s(now) <= 0

    def near_in_s(self, now: float) -> float:
        """Say in how many seconds the next near look could be made; 0 for now."""
        turn_s = min(self._turn_s(), NEAR_S / 2)
        near_s = min(RESCAN_S_MAX, max(turn_s, self._near_cost_s / self._fraction()))
        return max(0.0, self._near_at + near_s - now, self._rescanned_at + turn_s - now)

    def near_lanes(self) -> list[Lane]:
        """Give the lanes as they stood NEAR_S ago, and those that are newer as they are."""
        return self._behind(self._stood[0][1] if self._stood else {})

    def _behind(self, stood: Positions) -> list[Lane]:
        """Give each lane as it stood, or as it is if that is further back."""
        return [Lane(lane[0], *min(lane[1:], stood.get(lane[0], lane[1:]))) for lane in self.lanes()]

    def rescan_in_s(self, now: float) -> float:
        """Say in how many seconds a rescan keeps within its share of the time; 0 for now."""
        wait_s = min(RESCAN_S_MAX, min(self._costs_s) / self._fraction())
        return max(0.0, self._rescanned_at + wait_s - now)

    def _turn_s(self) -> float:
        """Say how long after a look it is this worker's turn again; those of its equals that claim look in between."""
        if not self.busy or self._sharers < SHARED_MIN:
            return RESCAN_S
        turns_s = min(TURN_S_MAX, RESCAN_S * min(self._alike, self._sharers))
        return max(SHARED_RESCAN_S, turns_s * self._jitter)

    def _fraction(self) -> float:
        return BUSY_COST_FRACTION if self.busy else COST_FRACTION
