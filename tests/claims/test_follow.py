"""Workers of one queue follow each other: a claim begins behind what the others have just claimed."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from pgtasks.engine import cursor
from pgtasks.engine.cursor import Cursor
from pgtasks.model import Claimed
from pgtasks.outcome import Completed, RetryIn
from pgtasks.store import session, statements
from pgtasks.store.statements import Lane
from tests.claims.following import LIMIT, add, claim, walked
from tests.claims.helpers import BEGINNING, rescan, until
from tests.claims.rig import Rig
from tests.database import Connection, rows
from tests.leases import steps


def _give_back(connection: Connection, taken: Sequence[Claimed]) -> None:
    """Let tasks be queued again where they were, as if nobody had claimed them: they are what is passed."""
    rows(
        connection,
        "UPDATE pgtasks.tasks SET state = 'queued', lease_id = NULL, claimed_at = NULL WHERE id = ANY(%s) RETURNING id",
        [task.id for task in taken],
    )


def _passed(connection: Connection, other: UUID, **of: Any) -> tuple[list[Claimed], list[Claimed]]:
    """Let another worker claim twice; what it took first is queued again, and is what a follower leaves behind."""
    first, second = claim(connection, other, **of), claim(connection, other, **of)
    _give_back(connection, first)
    return first, second


def test_a_claim_begins_behind_the_last_claim_of_a_worker_alike(connection: Connection) -> None:
    """What lies before it was looked at; without the front, the claim begins at the cursor and takes that."""
    me, other = (steps.known_worker(connection, "t") for _ in range(2))
    add(connection)
    first, second = _passed(connection, other)
    followed = claim(connection, me, after_lease=0)
    assert [task.id for task in followed] == [second[-1].id + n for n in range(1, LIMIT + 1)]
    assert [task.id for task in claim(connection, me)] == [task.id for task in first]


def _other_names(connection: Connection) -> int:
    _passed(connection, steps.known_worker(connection, "t", "u"))
    return 0


def _others_in_children(connection: Connection) -> int:
    _passed(connection, steps.known_worker(connection, "t", isolated=["t"]))
    return 0


def _not_known(connection: Connection) -> int:
    _passed(connection, steps.worker_id())
    return 0


def _another_queue(connection: Connection) -> int:
    add(connection, queue="other")
    _passed(connection, steps.known_worker(connection, "t"), queue="other")
    return 0


def _another_lane(connection: Connection) -> int:
    add(connection, priority=5)
    lanes = [Lane(5, BEGINNING.run_at, 0)]
    _passed(connection, steps.known_worker(connection, "t"), lanes=lanes)
    rows(connection, "DELETE FROM pgtasks.tasks WHERE priority = 5 AND state = 'queued' RETURNING id")
    return 0


def _out_of_turn(connection: Connection) -> int:
    _, second = _passed(connection, steps.known_worker(connection, "t"))
    rows(connection, "UPDATE pgtasks.tasks SET losses = 1 WHERE id = %s RETURNING id", second[-1].id)
    return 0


def _of_another_line(connection: Connection) -> int:
    _, second = _passed(connection, steps.known_worker(connection, "t"))
    rows(connection, "UPDATE pgtasks.tasks SET name = 'u' WHERE id = %s RETURNING id", second[-1].id)
    return 0


def _retried(connection: Connection) -> int:
    other = steps.known_worker(connection, "t")
    _, second = _passed(connection, other)
    ended = [(second[-1].id, second[-1].lease_id)]
    session.fetch_all(connection, statements.retry(other, ended, [RetryIn(0.0, steps.FAILURE)], []))
    return 0


def _finished(connection: Connection) -> int:
    other = steps.known_worker(connection, "t")
    _, second = _passed(connection, other)
    ended = [(second[-1].id, second[-1].lease_id)]
    session.fetch_all(connection, statements.complete(other, ended, [Completed()], []))
    return 0


def _in_the_future(connection: Connection) -> int:
    _, second = _passed(connection, steps.known_worker(connection, "t"))
    later = "UPDATE pgtasks.tasks SET run_at = clock_timestamp() + interval '1 day' WHERE id = %s RETURNING id"
    rows(connection, later, second[-1].id)
    return 0


def _before_my_last_claim(connection: Connection) -> int:
    _, second = _passed(connection, steps.known_worker(connection, "t"))
    return second[-1].lease_id


@pytest.mark.parametrize(
    "claimed",
    [
        _other_names,
        _others_in_children,
        _not_known,
        _another_queue,
        _another_lane,
        _out_of_turn,
        _of_another_line,
        _retried,
        _finished,
        _in_the_future,
        _before_my_last_claim,
    ],
)
def test_what_tells_nothing_of_what_was_passed_is_not_followed(
    connection: Connection, claimed: Callable[[Connection], int]
) -> None:
    """The claim begins at the cursor then, and takes the first that is queued."""
    me = steps.known_worker(connection, "t")
    add(connection)
    after_lease = claimed(connection)
    ((head,),) = rows(
        connection,
        "SELECT id FROM pgtasks.tasks WHERE queue = 'default' AND state = 'queued' AND losses = 0 AND name = 't'"
        " AND run_at <= clock_timestamp() ORDER BY priority DESC, run_at, id LIMIT 1",
    )
    assert claim(connection, me, after_lease=after_lease)[0].id == head


def test_the_newest_that_tells_something_is_followed(connection: Connection) -> None:
    """Claims of others with other handlers may lie between."""
    me, alike, different = (steps.known_worker(connection, *names) for names in ("t", "t", "tu"))
    add(connection)
    _, second = _passed(connection, alike)
    add(connection, name="u")
    claim(connection, different, names=["u"])
    assert claim(connection, me, after_lease=0)[0].id == second[-1].id + 1


def test_of_many_later_claims_the_newest_are_looked_at(connection: Connection) -> None:
    """Twenty at most; the front is where the last of them ended."""
    me, other = (steps.known_worker(connection, "t") for _ in range(2))
    add(connection, 30 * LIMIT)
    taken = [claim(connection, other) for _ in range(25)]
    _give_back(connection, taken[22])
    assert claim(connection, me, after_lease=0)[0].id == taken[-1][-1].id + 1


def test_a_claim_that_is_not_committed_is_passed_over(dsn: str, connection: Connection) -> None:
    """It shows no lease yet; its rows are skipped, and nobody waits for it."""
    me, other, third = (steps.known_worker(connection, "t") for _ in range(3))
    add(connection)
    _, second = _passed(connection, other)
    with psycopg.connect(dsn) as claiming:
        claim(claiming, third, after_lease=0)
        found = claim(connection, me, after_lease=0)
        assert [task.id for task in found] == [second[-1].id + n for n in range(LIMIT + 1, 2 * LIMIT + 1)]


def test_a_front_behind_the_cursor_takes_nobody_back(connection: Connection) -> None:
    """It moves a lane forward, or not at all."""
    me, other = (steps.known_worker(connection, "t") for _ in range(2))
    add(connection)
    claim(connection, other)
    ((run_at, task_id),) = rows(connection, "SELECT run_at, id FROM pgtasks.tasks ORDER BY id DESC OFFSET 3 LIMIT 1")
    assert claim(connection, me, lanes=[Lane(0, run_at, task_id)], after_lease=0)[0].id == task_id + 1


def test_other_lanes_stay_where_they_are(connection: Connection) -> None:
    """The front is of one priority; a higher one is served before, a lower one after, each from its cursor."""
    me, other = (steps.known_worker(connection, "t") for _ in range(2))
    for priority, count in ((0, 20), (1, 22), (2, 1)):
        add(connection, count, priority=priority)
    lanes = [Lane(priority, BEGINNING.run_at, 0) for priority in (2, 1, 0)]
    _passed(connection, other, lanes=lanes[1:])
    found = claim(connection, me, lanes=lanes, after_lease=0)
    assert [task.priority for task in found] == [2, 1, 1, *[0] * 7]


@pytest.mark.parametrize("workers", [2, 20])
def test_a_claim_walks_as_many_rows_however_many_workers_take_turns(connection: Connection, workers: int) -> None:
    """Those it takes. Without the front it is those of all the others, too."""
    add(connection, 1000)
    ids = [steps.known_worker(connection, "t") for _ in range(workers)]
    last = {worker: claim(connection, worker) for worker in ids}
    taken = last[ids[0]]
    statement = statements.claim(
        "default",
        [Lane(0, taken[-1].run_at, taken[-1].id)],
        limit=LIMIT,
        names=["t"],
        worker_id=ids[0],
        lease_s=30,
    )

    assert walked(connection, statements.follow(statement, taken[-1].lease_id)) == LIMIT
    assert walked(connection, statement) == LIMIT * workers


def test_what_was_passed_is_found_from_the_head(connection: Connection) -> None:
    """As everything that a cursor passed: by the next rescan, of any worker."""
    me, other = (steps.known_worker(connection, "t") for _ in range(2))
    add(connection, 4 * LIMIT)
    first, _ = _passed(connection, other)
    mine = Cursor()
    mine.claimed(claim(connection, me, after_lease=0), full=True, ended=0.0)
    assert not {task.id for task in first} & {task.id for task in claim(connection, me, lanes=mine.lanes())}
    assert [task.id for task in rescan(connection, LIMIT)] == [task.id for task in first]


async def test_workers_with_a_backlog_follow_each_other(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every task runs once."""
    followed: list[int] = []
    follow = statements.follow

    def noted(claim: session.Statement[Claimed], after_lease: int) -> session.Statement[Claimed]:
        followed.append(after_lease)
        return follow(claim, after_lease)

    monkeypatch.setattr(statements, "follow", noted)
    monkeypatch.setattr(cursor, "FOLLOWED_MIN", 20)
    add(connection, 3000)
    async with Rig(dsn, concurrency=20) as one, Rig(dsn, concurrency=20) as two, Rig(dsn, concurrency=20) as three:
        rigs = (one, two, three)
        await until(lambda: sum(len(rig.order) for rig in rigs) >= 3000, hint="not all tasks ran")
    assert followed
    order = [task_id for rig in rigs for task_id in rig.order]
    assert len(order) == len(set(order)) == 3000


async def test_looks_behind_the_cursor_follow_nobody(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A near look is there for what was passed: it would see nothing of that from the front."""
    monkeypatch.setattr(Cursor, "near_due", lambda self, now: bool(self.lanes()))
    monkeypatch.setattr(Cursor, "follows", lambda self: pytest.fail("a near look asks for the front"))
    add(connection, 200)
    async with Rig(dsn, concurrency=20) as rig:
        await until(lambda: len(rig.order) >= 200, hint="not all tasks ran")


def _at(seconds: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def _batch(lease_id: int, count: int, *, began: float = 1.0, number: int = 1) -> list[Claimed]:
    return [
        Claimed(number + n, lease_id, "t", "{}", 1, None, None, 0, _at(began + n / 1000), None) for n in range(count)
    ]


def test_a_claim_follows_others_with_a_backlog_of_which_they_take_much() -> None:
    """By the leases between its own, as large as its own, in the mean; not for less than it costs to ask."""
    mine = Cursor()
    assert mine.follows() is None
    mine.claimed(_batch(10, 100), full=True, ended=0.0)
    assert mine.follows() is None, "nothing is known of others yet"
    enough, lease_id = cursor.FOLLOWED_MIN // 100, 10
    for others, follows in ((enough // 2, False), (enough * 2, True), (0, False)):
        for turn in range(50):
            lease_id += 1 if turn % 5 == 0 else 1 + others * 5 // 4
            mine.claimed(_batch(lease_id, 100, number=lease_id), full=True, ended=0.0)
            if turn > 25:
                assert (mine.follows() == lease_id) == follows, f"others took {others * 100}"
    for _ in range(50):
        lease_id += 1 + enough * 2
        mine.claimed(_batch(lease_id, 100, number=lease_id), full=True, ended=0.0)
    mine.claimed(_batch(lease_id + 100, 100, number=lease_id), full=False, ended=0.0)
    assert mine.follows() is None, "there is no backlog"


def test_who_went_back_to_what_was_passed_follows_nobody_until_it_is_where_it_was() -> None:
    """Also when it goes back again from there, whatever other lanes do: it would leave what it went back for."""
    mine = Cursor()
    mine.claimed(_batch(1, 100, began=500.0, number=5000), full=True, ended=0.0)
    for lease_id, began in ((100, 300.0), (200, 100.0), (300, 301.0)):
        mine.rescanned(
            _batch(lease_id, 100, began=began, number=lease_id), full=True, began=_at(600), ended=0.0, cost_s=0.0
        )
        assert mine.follows() is None
    ahead = [task._replace(priority=1) for task in _batch(400, 100, began=2.0, number=700)]
    mine.claimed(ahead, full=True, ended=0.0)
    assert mine.follows() is None
    mine.claimed(_batch(500, 100, began=499.9, number=4000), full=True, ended=0.0)
    assert mine.follows() is None
    mine.claimed(_batch(600, 100, began=501.0, number=6001), full=True, ended=0.0)
    assert mine.follows() == 600, "it is there again"


def test_a_short_look_from_the_head_ends_every_way_back() -> None:
    """Nothing is left behind then; also where the clock was set back and no lane will be where it was for an hour."""
    mine = Cursor()
    mine.claimed(_batch(1, 100, began=3600.0, number=5000), full=True, ended=0.0)
    mine.rescanned(_batch(100, 100), full=True, began=_at(10), ended=0.0, cost_s=0.0)
    assert mine.follows() is None
    mine.rescanned([], full=False, began=_at(20), ended=0.0, cost_s=0.0)
    mine.claimed(_batch(200, 100, began=20.0, number=7001), full=True, ended=0.0)
    assert mine.follows() == 200
