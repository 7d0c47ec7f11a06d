"""C-01: a claim never takes more tasks than its limit, whatever plan the server picks."""

import psycopg
import pytest

from pgtasks.store.statements import Lane
from tests.claims.helpers import BEGINNING, claim, rescan
from tests.database import Connection, value

# They leave the planner nothing but nested loops, the plan that re-runs a subquery with a limit.
ADVERSARIAL = ("hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize", "indexscan", "bitmapscan")


@pytest.fixture(params=["adversarial", "planner's choice"])
def planner(connection: Connection, request: pytest.FixtureRequest) -> Connection:
    """A connection with or without the settings that force the dangerous plan."""
    if request.param == "adversarial":
        for name in ADVERSARIAL:
            connection.execute(f"SET enable_{name} = off".encode())
    return connection


def _fill(connection: Connection, rows: int, *, analyzed: bool) -> None:
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, priority) SELECT 't', n %% 3 FROM generate_series(1, %s) n", (rows,)
    )
    if analyzed:
        connection.execute("ANALYZE pgtasks.tasks")
        connection.execute("ANALYZE pgtasks.leases")


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize(("rows", "limit"), [(5, 1), (50, 1), (50, 3), (50, 17)])
@pytest.mark.parametrize("lanes", [(0,), (2, 1, 0), (2, 1, 0, -1, -2)])
def test_a_claim_takes_no_more_than_its_limit(
    planner: Connection, rows: int, limit: int, lanes: tuple[int, ...], *, analyzed: bool
) -> None:
    """From the cursors of one, of all, and of more priorities than there are."""
    _fill(planner, rows, analyzed=analyzed)
    expected = min(limit, rows if len(lanes) > 1 else rows // 3)
    taken = claim(planner, limit, lanes=[Lane(one, BEGINNING.run_at, 0) for one in lanes])
    assert len(taken) == expected
    assert value(planner, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'running'") == expected
    assert value(planner, "SELECT sum(cardinality(task_ids)) FROM pgtasks.leases") == expected


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize(("rows", "limit"), [(5, 1), (50, 1), (50, 3), (50, 17)])
def test_a_rescan_takes_no_more_than_its_limit(planner: Connection, rows: int, limit: int, *, analyzed: bool) -> None:
    """From the head of all priorities."""
    _fill(planner, rows, analyzed=analyzed)
    assert len(rescan(planner, limit)) == limit
    assert value(planner, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'running'") == limit


def test_nothing_beyond_the_limit_is_locked(dsn: str, connection: Connection) -> None:
    """While one claim's transaction is open, another one gets the rest, all of it."""
    _fill(connection, 50, analyzed=False)
    with connection.transaction(), psycopg.connect(dsn, autocommit=True) as other:
        assert len(rescan(connection, 7)) == 7
        assert len(rescan(other, 500)) == 43
