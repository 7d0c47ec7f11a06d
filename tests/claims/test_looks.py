"""What a look from the head sees besides the tasks that it claims: a queue that is paused, and workers alike."""

import random
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from pgtasks.engine.cursor import NEAR_S, RESCAN_S, RESCAN_S_MAX, SHARED_RESCAN_S, Cursor
from pgtasks.model import Claimed, Look
from pgtasks.store import session, statements
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


def test_lanes_do_not_move_past_what_is_in_a_paused_queue() -> None:
    """Nor is one made; and the next claim is from the head: priorities may have come that have no lane."""
    cursor = Cursor()
    cursor.rescanned([], full=False, began=at(100), ended=0.0, cost_s=0.0, is_paused=True)
    assert cursor.lanes() == []
    cursor.claimed([task(5, 9)], full=False, ended=0.0)
    cursor.rescanned([], full=False, began=at(100), ended=0.0, cost_s=0.0, is_paused=True)
    assert on_lanes(cursor) == [(0, at(5), 9)]
    assert cursor.head_first(0.0)
    cursor.rescanned([], full=False, began=at(100), ended=0.0, cost_s=0.0)
    assert on_lanes(cursor) > [(0, at(5), 9)]
    assert not cursor.head_first(10.0)


async def test_what_is_most_urgent_in_a_resumed_queue_goes_first(dsn: str, connection: Connection) -> None:
    """Also for a worker that has not seen its priority before, and knows where the rest of the queue goes on."""
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


def _backlog(cursor: Cursor, now: float, others: int, *, after: int) -> int:
    """Let a cursor's worker claim once, and others between; gives the lease."""
    lease_id = after + others + 1
    cursor.claimed([_leased(lease_id)], full=True, ended=now)
    return lease_id


def _leased(lease_id: int) -> Claimed:
    return task(1, lease_id)._replace(lease_id=lease_id)


def _waits(alike: int, others: int, due: Callable[[Cursor, float], bool] = Cursor.rescan_due) -> list[float]:
    """Say how long a busy worker waits until its next look, in a hundred turns; to the tenth of a second."""
    cursor, lease_id, waits = Cursor(random.Random(7)), 0, []
    for turn in range(100):
        began = turn * 100.0
        cursor.rescanned([_leased(lease_id + 1)], full=True, began=at(0), ended=began, cost_s=0.0, alike=alike)
        lease_id = _backlog(cursor, began, others, after=lease_id + 1)
        waits.append(next(n / 10 for n in range(1000) if due(cursor, began + n / 10)))
    return waits


def test_workers_alike_take_turns_at_looking_from_the_head() -> None:
    """As many as claim, at random, so that they do not stay in step; together they look as often as one would."""
    waits = _waits(alike=CLAIMERS, others=CLAIMERS - 1)
    turn_s = CLAIMERS * RESCAN_S
    assert 0.5 * turn_s <= min(waits) < 0.6 * turn_s
    assert 1.4 * turn_s < max(waits) <= 1.5 * turn_s + 0.1
    assert sum(waits) / len(waits) == pytest.approx(turn_s, rel=0.1)


@pytest.mark.parametrize(("alike", "others"), [(1, CLAIMERS - 1), (0, CLAIMERS - 1), (CLAIMERS, 1)])
def test_who_has_no_equal_that_claims_looks_by_itself(alike: int, others: int) -> None:
    """Where others have other handlers, or those alike have their hands full."""
    assert max(_waits(alike=alike, others=others)) <= max(SHARED_RESCAN_S, 2 * RESCAN_S * 1.5) + 0.1


def test_no_turn_is_longer_than_the_longest_wait() -> None:
    """However many there are."""
    assert max(_waits(alike=1000, others=1000)) == pytest.approx(RESCAN_S_MAX)


def test_a_near_look_waits_for_its_turn_too() -> None:
    """It takes the place of a look from the head; without a backlog it is as before."""
    cursor = Cursor(random.Random(7))
    for _ in range(2):
        cursor.rescanned([_leased(1)], full=True, began=at(0), ended=0.0, cost_s=100.0, alike=CLAIMERS)
    _backlog(cursor, 0.0, CLAIMERS - 1, after=1)
    assert cursor.near_in_s(0.0) >= CLAIMERS * RESCAN_S / 2 > RESCAN_S
    assert cursor.near_in_s(0.0) < NEAR_S * 2
    cursor.claimed([], full=False, ended=0.0)
    assert cursor.near_in_s(0.0) == pytest.approx(RESCAN_S)
