"""The claim cursor as a state machine: lanes, rescans, and what they cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtasks.engine.cursor import (
    LAG,
    LANES_MAX,
    NEAR_S,
    RESCAN_S,
    RESCAN_S_MAX,
    SHORT_RESCAN_S,
    Cursor,
    claim_order,
)
from pgtasks.engine.trail import FRACTION, IN_A_ROW_MAX
from pgtasks.model import Claimed
from pgtasks.store.statements import Lane
from tests.claims.cursors import at, on_lanes, task


def _short(cursor: Cursor, began: float, *rows: Claimed, ended: float = 0.0, cost_s: float = 0.0) -> None:
    cursor.rescanned(rows, full=False, began=at(began), ended=ended, cost_s=cost_s)


def test_it_begins_without_lanes_and_a_rescan_due() -> None:
    """A new worker looks from the head first."""
    cursor = Cursor()
    assert cursor.lanes() == []
    assert cursor.rescan_due(0.0)


def test_a_claim_moves_each_lane_forward_only() -> None:
    """To its last row; a row that lies behind moves nothing."""
    cursor = Cursor()
    cursor.claimed([task(5, 9, 1), task(1, 1), task(2, 2)], full=True, ended=0.0)
    cursor.claimed([task(1, 7)], full=False, ended=0.0)
    assert on_lanes(cursor) == [(1, at(5), 9), (0, at(2), 2)]


def test_a_full_rescan_goes_back_to_where_it_stopped() -> None:
    """Only in the lane it stopped in: the higher ones were read to their end."""
    cursor = Cursor()
    cursor.claimed([task(50, 50, 1), task(60, 60)], full=True, ended=0.0)
    cursor.rescanned([task(3, 3, 1), task(1, 1), task(2, 2)], full=True, began=at(100), ended=0.0, cost_s=0.0)
    assert on_lanes(cursor) == [(1, at(50), 50), (0, at(2), 2)]


def test_a_short_rescan_moves_every_lane_past_what_cannot_run() -> None:
    """To T minus the lag, or where it is if that is later; with a lane if there was none."""
    cursor = Cursor()
    _short(cursor, 10)
    assert on_lanes(cursor) == [(0, at(10) - LAG, 2**63 - 1)]
    cursor.claimed([task(9, 1), task(1, 2, -5)], full=False, ended=0.0)
    _short(cursor, 10)
    assert on_lanes(cursor) == [(0, at(9), 1), (-5, at(10) - LAG, 2**63 - 1)]


def test_a_clock_that_was_set_back_takes_the_lanes_along() -> None:
    """A lane that is ahead of the clock by more than the error of reading it."""
    cursor = Cursor()
    cursor.claimed([task(3600, 1)], full=False, ended=0.0)
    _short(cursor, 0)
    assert on_lanes(cursor) == [(0, at(0) - LAG, 2**63 - 1)]


@pytest.mark.parametrize(("busy", "wait_s"), [(True, RESCAN_S), (False, SHORT_RESCAN_S)])
def test_rescans_are_spaced_by_load(*, busy: bool, wait_s: float) -> None:
    """Rarer with a backlog, when every claim comes back full."""
    cursor = Cursor()
    _short(cursor, 10, ended=100.0)
    cursor.claimed([task(9, 1)], full=busy, ended=0.0)
    assert not cursor.rescan_due(100.0 + wait_s - 0.001)
    assert cursor.rescan_due(100.0 + wait_s + 0.001)


def test_rescans_are_rarer_while_others_claim_too() -> None:
    """The leases of others lie between one's own then; a passed row still waits for less than a second.

    Two of one's own that follow each other do not mean that the others have gone; some dozens do.
    """
    cursor = Cursor()
    _short(cursor, 0)
    alone = range(16, 60)
    for lease_id, wait_s in ((10, 0.5), (11, 0.5), (15, 0.9), (16, 0.9), *((n, None) for n in alone), (60, 0.5)):
        cursor.claimed([task(1, lease_id)._replace(lease_id=lease_id)], full=True, ended=0.0)
        if wait_s is not None:
            assert not cursor.rescan_due(wait_s - 0.01)
            assert cursor.rescan_due(wait_s)


def test_slow_rescans_take_a_twentieth_of_the_time_and_of_a_busy_workers_a_fiftieth() -> None:
    """Once two in a row were slow; and never longer than the limit apart."""
    cursor = Cursor()
    _short(cursor, 10, ended=100.0, cost_s=0.2)
    assert cursor.rescan_in_s(100.0) == 0.0
    _short(cursor, 10, ended=100.0, cost_s=0.3)
    assert cursor.rescan_in_s(101.0) == pytest.approx(3.0)
    assert not cursor.rescan_due(103.9)
    assert cursor.rescan_due(104.1)
    cursor.claimed([task(11, 1)], full=True, ended=0.0)
    assert cursor.rescan_in_s(101.0) == pytest.approx(9.0)
    cursor.claimed([task(12, 2)], full=False, ended=0.0)
    for _ in range(2):
        _short(cursor, 10, ended=200.0, cost_s=100.0)
    assert cursor.rescan_in_s(200.0) == RESCAN_S_MAX


def _slow_rescan(cursor: Cursor, *, ended: float) -> None:
    for _ in range(2):
        _short(cursor, 0, ended=ended, cost_s=100.0)


def test_a_near_look_takes_the_place_of_a_rescan_that_has_to_wait() -> None:
    """Every RESCAN_S, within its own share of the time; never while rescans are cheap."""
    cursor = Cursor()
    _short(cursor, 10, ended=100.0, cost_s=0.001)
    assert not any(cursor.near_due(100.0 + n / 10) for n in range(100))
    _slow_rescan(cursor, ended=100.0)
    assert not cursor.near_due(100.0 + RESCAN_S - 0.01)
    assert cursor.near_due(100.0 + RESCAN_S)
    cursor.looked_near([], full=False, ended=101.0, cost_s=0.05)
    assert cursor.near_in_s(101.0) == pytest.approx(1.0)
    cursor.looked_near([], full=False, ended=102.0, cost_s=0.0)
    assert cursor.near_in_s(102.0) == pytest.approx(RESCAN_S)


def test_near_lanes_are_where_the_lanes_stood_some_seconds_ago() -> None:
    """At least NEAR_S, and not much more; a lane that is younger, or further back now, as it is."""
    cursor = Cursor()
    for n in range(20):
        cursor.claimed([task(100 + n, n)], full=True, ended=0.0)
        cursor.looked_near([], full=False, ended=100.0 + n, cost_s=0.0)
    cursor.claimed([task(50, 99, 5)], full=True, ended=0.0)
    assert cursor.near_lanes() == [Lane(5, at(50), 99), Lane(0, at(119 - NEAR_S), int(19 - NEAR_S))]
    cursor.rescanned([task(3, 3)], full=True, began=at(200), ended=119.5, cost_s=0.0)
    assert cursor.near_lanes()[1] == Lane(0, at(3), 3)


def test_a_full_near_look_goes_back_to_where_it_stopped() -> None:
    """What lies right behind has not been looked at."""
    cursor = Cursor()
    cursor.claimed([task(60, 60)], full=True, ended=0.0)
    cursor.looked_near([task(40, 4), task(41, 5)], full=True, ended=0.0, cost_s=0.0)
    assert on_lanes(cursor) == [(0, at(41), 5)]
    cursor.claimed([task(60, 60)], full=True, ended=0.0)
    cursor.looked_near([task(42, 6)], full=False, ended=0.0, cost_s=0.0)
    assert on_lanes(cursor) == [(0, at(60), 60)]


def test_lanes_that_were_probed_are_added_and_move_none() -> None:
    """A lane that is there stays where it is."""
    cursor = Cursor()
    cursor.claimed([task(60, 60)], full=True, ended=0.0)
    cursor.add_lanes([Lane(0, at(1), 1), Lane(7, at(2), 2)], ended=0.0)
    assert on_lanes(cursor) == [(7, at(2), 2), (0, at(60), 60)]


def test_lanes_are_limited_and_the_one_longest_unused_goes() -> None:
    """However many priorities there are, a claim probes a bounded number."""
    cursor = Cursor()
    cursor.claimed([task(n, n, priority=n) for n in range(LANES_MAX + 10)], full=True, ended=0.0)
    assert [lane.priority for lane in cursor.lanes()] == list(range(LANES_MAX + 9, 9, -1))


def _back(cursor: Cursor, now: float) -> list[tuple[int, int]]:
    return [(lane.priority, lane.id) for lane in cursor.back_lanes(now)]


def test_a_claim_that_looks_back_begins_where_each_lane_stood_furthest_back_within_a_second() -> None:
    """Also a lane that was new a moment ago, or went back; what has not moved begins where it is."""
    cursor = Cursor()
    for n in range(5):
        cursor.claimed([task(n, n)], full=False, ended=100.0 + n / 2)
    assert [_back(cursor, now) for now in (102.0, 102.9, 103.1)] == [[(0, 1)], [(0, 3)], [(0, 4)]]
    cursor.claimed([task(1, 9, 7)], full=False, ended=104.0)
    assert _back(cursor, 104.1) == [(7, 9), (0, 4)]
    cursor.claimed([task(5, 15, 7), task(6, 6)], full=False, ended=104.2)
    assert _back(cursor, 104.2) == [(7, 9), (0, 4)]
    cursor.looked_back([task(2, 2)], full=True, ended=104.3, cost_s=0.0)
    cursor.claimed([task(8, 8)], full=False, ended=104.4)
    assert _back(cursor, 105.25) == [(7, 15), (0, 2)]
    _short(cursor, -100, ended=105.3)
    assert _back(cursor, 105.3) == [(7, 2**63 - 1), (0, 2**63 - 1)]


def _moving(cursor: Cursor, now: float, *, full: bool = False) -> None:
    second = int(now * 1000)
    cursor.claimed([task(second, second)], full=full, ended=now)


def test_most_claims_look_back_while_there_is_no_backlog() -> None:
    """But one now and then, and the first, with which the others are compared; nothing has moved: nothing to find."""
    cursor = Cursor()
    assert not cursor.back_due(100.0)
    for _ in range(2):
        _moving(cursor, 100.0)
    looks = []
    for n in range(24):
        looks.append(cursor.back_due(100.0 + n / 100))
        if looks[-1]:
            cursor.looked_back([], full=False, ended=100.0 + n / 100, cost_s=0.0)
        else:
            cursor.claimed([], full=False, ended=100.0 + n / 100)
    assert looks == [*[True] * IN_A_ROW_MAX, False] * 3
    assert cursor.back_due(100.9)
    assert not cursor.back_due(101.1)
    _moving(cursor, 102.0, full=True)
    assert not cursor.back_due(102.0)
    _moving(cursor, 102.1)
    assert cursor.back_due(102.1)


@pytest.mark.parametrize("cost_s", [0.0002, 0.001, 0.01])
def test_to_look_back_takes_a_fiftieth_of_the_time(cost_s: float) -> None:
    """Whatever it costs, with other claims every 5 ms; a hiccup in either direction changes little."""
    cursor, now, spent_s = Cursor(), 100.0, 0.0
    while now < 200.0:
        now += 0.005
        if cursor.back_due(now):
            hiccup = 0.002 * (-1) ** int(now * 7)
            now += cost_s
            spent_s += cost_s
            cursor.looked_back([], full=False, ended=now, cost_s=cost_s + hiccup)
        else:
            _moving(cursor, now)
    assert 0.3 <= spent_s / (100 * FRACTION) <= 1.5


class _Model:
    """A queue of rows with their positions, read by one cursor as the two statements do."""

    def __init__(self) -> None:
        self.cursor = Cursor()
        self.waiting: list[Claimed] = []
        self.now = 1000.0

    def claim(self, limit: int) -> list[Claimed]:
        rows = self._take(self._behind(self.cursor.lanes()), limit)
        self.cursor.claimed(rows, full=len(rows) == limit, ended=self.now)
        return rows

    def rescan(self, limit: int) -> list[Claimed]:
        rows = self._take(self.waiting, limit)
        self.cursor.rescanned(rows, full=len(rows) == limit, began=at(self.now), ended=self.now, cost_s=0.0)
        return rows

    def back(self, limit: int) -> list[Claimed]:
        rows = self._take(self._behind(self.cursor.back_lanes(self.now)), limit)
        self.cursor.looked_back(rows, full=len(rows) == limit, ended=self.now, cost_s=0.0)
        return rows

    def near(self, limit: int) -> list[Claimed]:
        rows = self._take(self._behind(self.cursor.near_lanes()), limit)
        self.cursor.looked_near(rows, full=len(rows) == limit, ended=self.now, cost_s=0.0)
        return rows

    def _behind(self, lanes: list[Lane]) -> list[Claimed]:
        starts = {lane.priority: (lane.run_at, lane.id) for lane in lanes}
        return [row for row in self.waiting if row.priority in starts and (row.run_at, row.id) > starts[row.priority]]

    def _take(self, rows: list[Claimed], limit: int) -> list[Claimed]:
        due = sorted((row for row in rows if row.run_at <= at(self.now)), key=claim_order)[:limit]
        self.waiting = [row for row in self.waiting if row not in due]
        return due


_steps = st.lists(
    st.tuples(st.sampled_from(["insert", "claim", "rescan", "near", "back"]), st.integers(0, 1005), st.integers(-2, 2)),
    max_size=60,
)


@given(_steps, st.integers(1, 7))
def test_a_rescan_and_the_claims_after_it_find_everything(steps: list[tuple[str, int, int]], limit: int) -> None:
    """Whatever happened before, in any order: rows behind lanes, new priorities, partial claims."""
    model = _Model()
    for number, (step, seconds, priority) in enumerate(steps):
        if step == "insert":
            model.waiting.append(task(seconds, number, priority))
        elif step == "claim":
            model.claim(limit)
        elif step == "near":
            model.near(limit)
        elif step == "back":
            model.back(limit)
        else:
            model.rescan(limit)
    while rows := model.rescan(limit):
        if len(rows) < limit:
            break
        while len(model.claim(limit)) == limit:
            pass
    assert [row for row in model.waiting if row.run_at <= at(model.now)] == []


@given(st.lists(st.integers(0, 999), unique=True, min_size=1, max_size=80), st.integers(1, 7))
def test_one_full_rescan_is_enough_for_a_lane_that_was_passed(seconds: list[int], limit: int) -> None:
    """A backlog that appears behind the cursor is then claimed from the cursor, however large it is."""
    model = _Model()
    model.rescan(limit)
    model.waiting = [task(second, second) for second in seconds]
    model.rescan(limit)
    while model.claim(limit):
        pass
    assert model.waiting == []


_ticks = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 2), st.integers(0, 900), st.booleans()), min_size=1, max_size=40
)


@given(_ticks, st.integers(1, 7))
def test_what_was_passed_within_a_second_is_found_by_looking_back(
    ticks: list[tuple[int, int, int, bool]], limit: int
) -> None:
    """Of a worker that keeps up, whatever the order: tasks of lanes that it has seen, committed up to 0.9 s late."""
    model = _Model()
    for priority in range(3):
        model.waiting.append(task(model.now - 2, priority, priority))
    model.rescan(10)
    for number, (pause_ms, priority, late_ms, looks_back) in enumerate(ticks, 3):
        model.now += pause_ms / 1000
        model.waiting.append(task(model.now - late_ms / 1000, number, priority))
        claim = model.back if looks_back or model.cursor.back_due(model.now) else model.claim
        while len(claim(limit)) == limit:
            claim = model.claim
        assert not looks_back or model.waiting == [row for row in model.waiting if row.run_at > at(model.now)]


@given(st.lists(st.integers(500, 999), unique=True, min_size=1, max_size=80), st.integers(1, 7))
def test_one_near_look_is_enough_for_what_was_committed_late(seconds: list[int], limit: int) -> None:
    """However many they are: the lane goes back, and the claims after it take the rest."""
    model = _Model()
    model.cursor.claimed([task(499, 0)], full=True, ended=0.0)
    model.near(limit)
    model.cursor.claimed([task(1000, 1)], full=True, ended=0.0)
    model.waiting = [task(second, second) for second in seconds]
    model.near(limit)
    while model.claim(limit):
        pass
    assert model.waiting == []
