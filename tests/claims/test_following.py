"""A claim begins where the newest lease of others stands, and what that passes is found."""

from __future__ import annotations

import pytest

from pgtasks.model import Claimed
from pgtasks.store.statements import Lane
from tests.claims.helpers import BEGINNING, claim, rescan, until
from tests.claims.rig import Rig
from tests.database import Connection

pytestmark = [pytest.mark.pg, pytest.mark.timeout(60)]
TASKS = 6000


def _lane(task: Claimed) -> Lane:
    return Lane(task.priority, task.run_at, task.id)


def _add(connection: Connection, count: int, *, name: str = "t", priority: int = 0, hours: int = 1) -> None:
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, priority, run_at)"
        " SELECT %s, %s, clock_timestamp() - make_interval(hours => %s) + n * interval '1 ms'"
        " FROM generate_series(1, %s) AS n",
        (name, priority, hours, count),
    )


def _give_back(connection: Connection, task: Claimed) -> None:
    """Make it nobody's, where it stood."""
    connection.execute(
        "UPDATE pgtasks.tasks SET state = 'queued', lease_id = NULL, claimed_at = NULL WHERE id = %s", (task.id,)
    )


def test_a_claim_begins_behind_the_newest_lease(connection: Connection) -> None:
    """And does not walk over what the others hold: a task between, of nobody, is passed by this claim only."""
    _add(connection, 100)
    own = claim(connection, 10)
    claim(connection, 20, lanes=[_lane(own[-1])])
    between, *newest = claim(connection, 20, lanes=[_lane(own[-1])])
    _give_back(connection, between)
    following = claim(connection, 10, lanes=[_lane(own[-1])], own_lease=own[0].lease_id)
    assert [task.id for task in following] == [newest[-1].id + n for n in range(1, 11)]
    assert [task.id for task in claim(connection, 1, lanes=[_lane(own[-1])])] == [between.id]


def test_a_lane_that_stands_further_on_stays_there(connection: Connection) -> None:
    """The newest lease may be one of tasks that were passed."""
    _add(connection, 100)
    own = claim(connection, 50)
    _add(connection, 20, hours=2)
    claim(connection, 10)
    following = claim(connection, 5, lanes=[_lane(own[-1])], own_lease=own[0].lease_id)
    assert [task.id for task in following] == [own[-1].id + n for n in range(1, 6)]


@pytest.mark.parametrize("kind", ["another queue", "a name it has no handler for", "done by now", "older"])
def test_what_tells_nothing_is_not_followed(connection: Connection, kind: str) -> None:
    """The claim goes on from its lane, and takes what it would have passed."""
    _add(connection, 40)
    own = claim(connection, 10)
    between, *taken = claim(connection, 20, lanes=[_lane(own[-1])])
    _give_back(connection, between)
    after = own[0].lease_id
    if kind == "another queue":
        connection.execute("INSERT INTO pgtasks.tasks (queue, name) VALUES ('other', 't')")
        claim(connection, 1, queue="other")
    elif kind == "a name it has no handler for":
        _add(connection, 200, name="foreign")
        claim(connection, 200, names=["foreign"])
    elif kind == "done by now":
        connection.execute("DELETE FROM pgtasks.tasks WHERE id = %s", (taken[-1].id,))
    else:
        after = taken[0].lease_id
    following = claim(connection, 5, lanes=[_lane(own[-1])], own_lease=after)
    assert following[0].id == between.id


def test_only_the_lane_of_its_priority_moves(connection: Connection) -> None:
    """What is more urgent is claimed first as ever."""
    _add(connection, 20)
    own = claim(connection, 5)
    others = claim(connection, 10, lanes=[_lane(own[-1])])
    _add(connection, 3, priority=7)
    lanes = [BEGINNING._replace(priority=7), _lane(own[-1])]
    got = claim(connection, 6, lanes=lanes, own_lease=own[0].lease_id)
    assert [task.priority for task in got] == [7, 7, 7, 0, 0, 0]
    assert [task.id for task in got[3:]] == [others[-1].id + n for n in (1, 2, 3)]


async def test_workers_with_different_names_do_not_hold_each_other_up(dsn: str, connection: Connection) -> None:
    """Each of two runs half of the names only; nothing is left behind where the others went ahead."""
    connection.execute(
        "INSERT INTO pgtasks.tasks (name) SELECT (ARRAY['a', 'b'])[1 + n %% 2] FROM generate_series(1, %s) AS n",
        (TASKS,),
    )
    async with (
        Rig(dsn, "a", concurrency=20) as one,
        Rig(dsn, "b", concurrency=20) as two,
        Rig(dsn, "a", "b", concurrency=20) as both,
    ):
        rigs = (one, two, both)
        await until(lambda: sum(len(rig.order) for rig in rigs) >= TASKS, hint="some are left behind")
    assert len({task_id for rig in rigs for task_id in rig.order}) == TASKS
    assert rescan(connection, 1, names=["a", "b"]) == []
