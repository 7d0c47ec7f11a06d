"""What a look from the head sees besides the tasks that it claims: a queue that is paused, and workers alike."""

import itertools
import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from pgtasks.engine.cursor import NEAR_S, RESCAN_S, SHARED_RESCAN_S, SHORT_RESCAN_S, TURN_S_MAX, Cursor
from pgtasks.model import Claimed, Look
from pgtasks.store import session, statements
from pgtasks.store.statements import Lane
from tests.claims.cursors import at, on_lanes, task
from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.database import Connection, rows
from tests.leases import steps

LIMIT = 3
CLAIMERS = 10


def _look(connection: Connection, worker: UUID, *, limit: int = LIMIT, queue: str = "default") -> list[Look]:
    statement = statements.rescan(queue, limit=limit, names=["t"], worker_id=worker, lease_s=30)
    return session.fetch_all(connection, statement)


def _add(connection: Connection, count: int, priority: int = 0) -> None:
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, priority) SELECT 't', %s FROM generate_series(1, %s)", (priority, count)
    )


def test_a_paused_queue_says_so(connection: Connection) -> None:
    """In the one row of a look that claims nothing; an empty queue is another thing, and so is another queue."""
    _add(connection, 5)
    connection.execute("SELECT pgtasks.pause('default')")
    assert _look(connection, uuid4()) == [Look(is_paused=True, alike=0, task=None)]
    assert _look(connection, uuid4(), queue="other") == [Look(is_paused=False, alike=0, task=None)]
    connection.execute("SELECT pgtasks.resume('default')")
    assert [look.is_paused for look in _look(connection, uuid4())] == [False] * LIMIT


def _set(connection: Connection, worker: UUID, change: str) -> None:
    rows(connection, f"UPDATE pgtasks.workers SET {change} WHERE id = %s RETURNING id", worker)


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ("busy = 1", 3),
        ("queues = '{other,default}'", 3),
        ("isolated = '{}'", 3),
        ("isolated = NULL", 3),
        ("queues = '{other}'", 2),
        ("names = '{t,u}'", 2),
        ("isolated = '{t}'", 2),
        ("draining = true", 2),
        ("last_seen_at = clock_timestamp() - make_interval(secs => lease_s + 1)", 2),
    ],
)
def test_a_full_look_counts_the_workers_that_serve_the_queue_alike(
    connection: Connection, change: str, alike: int
) -> None:
    """Those that live, take tasks, and have the same handlers, its own worker with them."""
    me, _, third = (steps.known_worker(connection, "t") for _ in range(3))
    _set(connection, third, change)
    _add(connection, LIMIT)
    assert [look.alike for look in _look(connection, me)] == [alike] * LIMIT


def test_a_look_that_is_not_full_counts_nobody(connection: Connection) -> None:
    """There is no backlog, and so no turns to take. Nor does one count whose worker nobody knows."""
    me, _ = (steps.known_worker(connection, "t") for _ in range(2))
    _add(connection, LIMIT - 1)
    assert {look.alike for look in _look(connection, me)} == {0}
    _add(connection, LIMIT)
    assert {look.alike for look in _look(connection, uuid4())} == {0}


async def test_a_worker_learns_from_its_looks_how_many_are_alike(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a backlog, itself and those that only live."""
    seen: list[int] = []
    rescanned = Cursor.rescanned

    def noted(cursor: Cursor, found: list[Claimed], *, alike: int, **of: Any) -> None:
        seen.append(alike)
        rescanned(cursor, found, alike=alike, **of)

    monkeypatch.setattr(Cursor, "rescanned", noted)
    workers = [steps.known_worker(connection, "t") for _ in range(3)]
    rig = Rig(dsn, concurrency=4, hold_s=0.01)
    _set(connection, workers[0], f"id = '{rig.id}'")
    _add(connection, 200)
    async with rig:
        await until(lambda: len(rig.order) == 200)
    assert 3 in seen
    assert set(seen) <= {0, 3}


def _paused(cursor: Cursor, *, ended: float = 0.0) -> None:
    cursor.rescanned([], full=False, began=at(100), ended=ended, cost_s=0.0, is_paused=True)


def test_lanes_do_not_move_past_what_is_in_a_paused_queue() -> None:
    """A worker that has none yet gets one at the beginning: it finds the queue resumed whatever looks cost."""
    cursor = Cursor()
    _paused(cursor)
    assert [lane[:2] for lane in on_lanes(cursor)] == [(0, datetime(1970, 1, 1, tzinfo=UTC))]
    cursor.claimed([task(5, 9)], full=False, ended=0.0)
    _paused(cursor)
    assert on_lanes(cursor) == [(0, at(5), 9)]
    cursor.rescanned([], full=False, began=at(100), ended=0.0, cost_s=0.0)
    assert on_lanes(cursor) > [(0, at(5), 9)]


def test_the_first_claim_from_a_queue_that_was_paused_is_from_the_head() -> None:
    """Priorities may have come that have no lane. Paused, it is looked at no more often than an empty one."""
    cursor = Cursor()
    cursor.claimed([task(5, 9)], full=False, ended=0.0)
    assert not cursor.rests(0.0)
    _paused(cursor)
    for now in (0.0, SHORT_RESCAN_S - 0.01):
        assert cursor.rests(now)
        assert not cursor.head_first(now)
    assert not cursor.rests(SHORT_RESCAN_S)
    assert cursor.head_first(SHORT_RESCAN_S)
    cursor.rescanned([task(6, 10)], full=True, began=at(100), ended=SHORT_RESCAN_S, cost_s=0.0)
    assert not cursor.rests(SHORT_RESCAN_S)
    assert not cursor.head_first(SHORT_RESCAN_S + 0.01)


def test_where_looks_are_dear_the_second_claim_from_a_queue_that_was_paused_is_from_the_head() -> None:
    """The cursor finds it resumed; nothing waits for a look that is due in half a minute."""
    cursor = Cursor()
    cursor.claimed([task(5, 9)], full=False, ended=0.0)
    for _ in range(2):
        cursor.rescanned([], full=False, began=at(100), ended=0.0, cost_s=100.0, is_paused=True)
    assert not cursor.rests(1.0)
    assert not cursor.head_first(1.0)
    cursor.claimed([task(6, 10)], full=True, ended=1.0)
    assert cursor.head_first(1.0)


async def test_what_is_most_urgent_in_a_resumed_queue_goes_first(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a worker that has not seen its priority before, and knows where the rest of the queue goes on.

    That is where looks are cheap, which they are here however busy this machine is.
    """
    monkeypatch.setattr(Cursor, "rescan_in_s", lambda _self, _now: 0.0)
    async with Rig(dsn, concurrency=4, hold_s=0.01) as rig:
        _add(connection, 1)
        await until(lambda: len(rig.order) == 1)
        connection.execute("SELECT pgtasks.pause('default')")
        await rig.asleep()
        _add(connection, 40)
        _add(connection, 4, priority=5)
        connection.execute("SELECT pgtasks.resume('default')")
        await until(lambda: len(rig.order) == 45)
    urgent = [task_id for (task_id,) in rows(connection, "SELECT id FROM pgtasks.history WHERE priority = 5")]
    assert sorted(rig.order[1:5]) == sorted(urgent)


def _leased(lease_id: int) -> Claimed:
    return task(1, lease_id)._replace(lease_id=lease_id)


def _looks(alike: int, others: list[int]) -> list[float]:
    """Say how long a busy worker waits from look to look that claims each 50 ms, with so many of others between."""
    cursor, lease_id, looks, now = Cursor(random.Random(7)), 0, [], 0.0
    for between in itertools.islice(itertools.cycle(others), 20_000):
        now += 0.05
        lease_id += between + 1
        if cursor.rescan_due(now):
            looks.append(now)
            cursor.rescanned([_leased(lease_id)], full=True, began=at(0), ended=now, cost_s=0.0, alike=alike)
        else:
            cursor.claimed([_leased(lease_id)], full=True, ended=now)
    # The first ones are from before it knew of the others.
    return [after - before for before, after in itertools.pairwise(looks[5:])]


@pytest.mark.parametrize("others", [[9], [9] * 10 + [0, 18], [0, 18, 9, 4, 14, 0, 18]])
def test_workers_alike_take_turns_at_looking_from_the_head(others: list[int]) -> None:
    """As many as claim, at random, so that they do not stay in step; together they look as often as one would.

    The claims of others do not come one of each in turn.
    """
    waits = _looks(CLAIMERS, others)
    turn_s = CLAIMERS * RESCAN_S
    assert 0.4 * turn_s <= min(waits) < 0.6 * turn_s
    assert 1.3 * turn_s < max(waits) <= 1.5 * turn_s + 0.1
    assert sum(waits) / len(waits) == pytest.approx(turn_s, rel=0.15)


@pytest.mark.parametrize(
    ("alike", "others", "longest_s"),
    [
        (1, CLAIMERS - 1, SHARED_RESCAN_S),
        (0, CLAIMERS - 1, SHARED_RESCAN_S),
        (CLAIMERS, 0, RESCAN_S),
        (CLAIMERS, 1, 2 * RESCAN_S * 1.5),
        (1000, 1000, TURN_S_MAX * 1.5),
    ],
)
def test_who_has_no_equal_that_claims_looks_by_itself(alike: int, others: int, longest_s: float) -> None:
    """Where others have other handlers, or those alike have their hands full; and nobody waits for long."""
    assert longest_s - 0.1 < max(_looks(alike, [others])) <= longest_s + 0.1


def test_turns_are_those_of_this_backlog() -> None:
    """A look that is not full forgets who was alike: the next backlog may be served by others."""
    cursor = Cursor(random.Random(7))
    for turn in range(1, 100):
        cursor.claimed([_leased(turn * CLAIMERS)], full=True, ended=0.0)
    cursor.rescanned([_leased(1000)], full=True, began=at(0), ended=0.0, cost_s=0.0, alike=CLAIMERS)
    cursor.claimed([_leased(1010)], full=True, ended=0.0)
    assert not cursor.rescan_due(SHARED_RESCAN_S)
    cursor.rescanned([], full=False, began=at(0), ended=0.0, cost_s=0.0)
    cursor.claimed([_leased(1020)], full=True, ended=0.0)
    assert cursor.rescan_due(SHARED_RESCAN_S)


def test_who_waits_for_a_turn_asks_for_new_priorities() -> None:
    """As often as it would look if it had no equal; what a probe finds gets a lane."""
    cursor = Cursor(random.Random(7))
    for turn in range(1, 100):
        cursor.claimed([_leased(turn * CLAIMERS)], full=True, ended=0.0)
    cursor.rescanned([_leased(1000)], full=True, began=at(0), ended=0.0, cost_s=0.0, alike=CLAIMERS)
    assert not cursor.probe_due(SHARED_RESCAN_S - 0.01)
    assert cursor.probe_due(SHARED_RESCAN_S)
    assert not cursor.rescan_due(SHARED_RESCAN_S)
    cursor.add_lanes([Lane(7, at(2), 2)], ended=SHARED_RESCAN_S)
    assert on_lanes(cursor)[0] == (7, at(2), 2)
    assert not cursor.probe_due(2 * SHARED_RESCAN_S - 0.01)
    assert cursor.probe_due(2 * SHARED_RESCAN_S)
    cursor.claimed([_leased(1010)], full=False, ended=1.0)
    assert not cursor.probe_due(100.0), "there is no backlog: it looks"


async def test_a_new_priority_does_not_wait_for_a_turn(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a worker that has a backlog, and would look from the head in a minute only."""
    monkeypatch.setattr(Cursor, "_turn_s", lambda self: 60.0 if self.busy else RESCAN_S)
    _add(connection, 2000)
    async with Rig(dsn, concurrency=4, hold_s=0.01) as rig:
        await until(lambda: len(rig.order) > 100)
        _add(connection, 1, priority=5)
        ((urgent,),) = rows(connection, "SELECT id FROM pgtasks.tasks WHERE priority = 5")
        await until(lambda: urgent in rig.started, hint="it waits for the backlog")
        assert len(rig.order) < 2000
        assert rig.claimer.rescans < 5


def test_near_looks_take_turns_too_but_none_that_leave_something_out() -> None:
    """Each starts where the lanes stood NEAR_S ago, so it comes before the last one is that long ago."""
    cursor = Cursor(random.Random(7))
    for turn in range(1, 100):
        cursor.claimed([_leased(turn * CLAIMERS)], full=True, ended=0.0)
    for _ in range(2):
        cursor.rescanned([_leased(1000)], full=True, began=at(0), ended=0.0, cost_s=100.0, alike=1000)
    assert RESCAN_S < cursor.near_in_s(0.0) <= NEAR_S / 2
    cursor.claimed([], full=False, ended=0.0)
    assert cursor.near_in_s(0.0) == pytest.approx(RESCAN_S)


@pytest.mark.parametrize("looks_back", [False, True])
def test_near_lanes_are_from_some_seconds_ago_however_rare_looks_are(*, looks_back: bool) -> None:
    """Claims remember where the lanes stood, those that look back a second as well."""
    cursor = Cursor()
    for second in range(60):
        if looks_back:
            cursor.looked_back([task(second, second)], full=False, ended=float(second), cost_s=0.0)
        else:
            cursor.claimed([task(second, second)], full=True, ended=float(second))
    (lane,) = cursor.near_lanes()
    assert at(59 - NEAR_S - 1) <= lane.run_at <= at(59 - NEAR_S)
