"""B-01: a task is found by its key, and whatever reads tasks by a condition, whatever the statistics say of the table.

Two states make the planner believe that a whole index of tasks is a page: a vacuum that found no living row behind an
old snapshot, and a vacuum of a queue that was nearly empty, but for a task on the table's last page. Many tasks come
after that, and statistics a minute after them, or later.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from bench import plans
from pgtasks.outcome import Cancelled, Completed, Dead, RetryIn
from pgtasks.store import cancelling, conninfo, explaining, reading, session, statements, watching
from pgtasks.store.session import Statement
from tests.claims.helpers import ME, analyze, claim, explain
from tests.database import FIRST_ID, Connection, rows, value
from tests.leases import steps

ENDED = [(FIRST_ID + n, 1) for n in range(500)]
MANY = 20000
NEVER = datetime(2100, 1, 1, tzinfo=UTC)

# Of one queue, or by the keys of tasks.
HOT: dict[str, Statement[Any]] = {
    **{name: statement for name, (statement, _) in plans.hot().items()},
    "complete": statements.complete(ME, ENDED, [Completed(None, None)] * 500, [1]),
    "retry": statements.retry(ME, ENDED, [RetryIn(1.0, steps.FAILURE)] * 500, [1]),
    "bury": statements.bury(ME, ENDED, [Dead("exhausted", steps.FAILURE)] * 500, [1]),
    "cancelled": statements.cancelled(ME, ENDED, [Cancelled("no")] * 500, [1]),
    "release": statements.release(ME, ENDED, [0.0] * 500, [1]),
    "beat": statements.beat(ME, lease_s=30.0, lease_ids=[1], running=ENDED, busy=1, draining=False),
    "blocked": statements.blocked(ENDED),
    "recognise": statements.recognise(ENDED, traceless=[True] * 500, queues=["default"] * 500),
    "list expired": statements.list_expired(limit=50, skip_leases=[]),
}
WATCHED: dict[str, Statement[Any]] = {
    "running by queue": reading.running(limit=10000),
    "workers": reading.workers(limit=100),
    "lost": reading.lost(tolerated_s=5.0, limit=100),
    "running": watching.running(scan=10000, limit=100),
    "explain": explaining.explain(FIRST_ID),
    "cancel": cancelling.cancel(cancelling.Filters(), after=0, until=FIRST_ID + MANY, limit=1000),
}
# They look for tasks by their queues only, or by a range of ids.
LOOKS = {"counted suspects", "due", "left"}
POOLER = {"plan_cache_mode": "force_custom_plan"}
SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan", "Sample Scan"}


@contextmanager
def none_behind_a_snapshot(dsn: str, connection: Connection) -> Iterator[None]:
    """Dead rows alone, which an old snapshot keeps."""
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, %s)", (MANY,))
    connection.execute("ANALYZE pgtasks.tasks")
    with psycopg.connect(dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        rows(holder, "SELECT count(*) FROM pgtasks.tasks")
        connection.execute("DELETE FROM pgtasks.tasks")
        connection.execute("VACUUM (ANALYZE) pgtasks.tasks")
        said = "SELECT reltuples = 0 AND relpages >= 500 FROM pg_class WHERE oid = 'pgtasks.tasks'::regclass"
        assert value(connection, said)
        yield


@contextmanager
def one_at_the_end(dsn: str, connection: Connection) -> Iterator[None]:
    """A queue that was nearly empty, and is not any more."""
    add = "INSERT INTO pgtasks.tasks (name, priority) SELECT 't', n %% 2 FROM generate_series(1, %s) n"
    connection.execute(add, (MANY,))
    connection.execute("DELETE FROM pgtasks.tasks WHERE id < (SELECT max(id) FROM pgtasks.tasks)")
    connection.execute("VACUUM (ANALYZE) pgtasks.tasks")
    said = "SELECT reltuples = 1 AND relpages >= 300 FROM pg_class WHERE oid = 'pgtasks.tasks'::regclass"
    assert value(connection, said)
    connection.execute(add, (MANY,))
    yield


STATES = [none_behind_a_snapshot, one_at_the_end]
State = Callable[[str, Connection], Any]


@pytest.fixture(autouse=True)
def _statistics_of_this_test(connection: Connection) -> Iterator[None]:
    """Keep autovacuum from making better ones meanwhile."""
    connection.execute("TRUNCATE pgtasks.tasks")
    connection.execute("ALTER TABLE pgtasks.tasks SET (autovacuum_enabled = off)")
    yield
    connection.execute("ALTER TABLE pgtasks.tasks RESET (autovacuum_enabled)")
    connection.execute("TRUNCATE pgtasks.tasks")
    connection.execute("ANALYZE pgtasks.tasks")


def unconditioned(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give what reads tasks from one end to the other."""
    return [
        node
        for node in found
        if node["Node Type"] in SCANS
        and (node.get("Relation Name") == "tasks" or node.get("Index Name", "").startswith("tasks_"))
        # It holds suspects alone.
        and node.get("Index Name") != "tasks_suspects"
        and "Index Cond" not in node
        and "Recheck Cond" not in node
    ]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("settings", [plans.ENGINE, POOLER], ids=["engine", "pooler"])
@pytest.mark.parametrize("name", sorted(HOT))
def test_tasks_are_found_by_their_key(
    dsn: str, connection: Connection, name: str, settings: dict[str, str], state: State
) -> None:
    """Each hot statement, as it is prepared for good and as it is planned behind a pooler."""
    with (
        state(dsn, connection),
        psycopg.connect(conninfo.complete(dsn, "claim", pooler="transaction"), autocommit=True) as engine,
    ):
        found = explain(engine, HOT[name], **settings)
    assert not unconditioned(found), unconditioned(found)
    if name not in LOOKS:
        by_id = {
            node["Index Name"]
            for node in found
            if node.get("Index Name", "").startswith("tasks_") and "queue" not in node["Index Cond"]
        }
        assert by_id == {"tasks_pkey"}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("name", "part"),
    [(name, part) for name in sorted(WATCHED) for part in ("cli", "metrics") if (name, part) != ("cancel", "metrics")],
)
def test_so_are_those_that_people_look_at(dsn: str, connection: Connection, name: str, part: Any, state: State) -> None:
    """As the command line and the metrics read them, and as the first cancels."""
    with state(dsn, connection), psycopg.connect(conninfo.complete(dsn, part), autocommit=True) as client:
        found = explain(client, WATCHED[name], **POOLER)
    assert not unconditioned(found), unconditioned(found)


@pytest.mark.parametrize("name", ["complete", "retry", "bury", "cancelled", "release", "beat"])
def test_a_batch_touches_its_own_rows_alone(dsn: str, connection: Connection, name: str) -> None:
    """What is read of tasks by a statement that was prepared then grows with the batch, and not with the table."""
    with one_at_the_end(dsn, connection), steps.connect(dsn) as engine:
        claimed = claim(engine, 100)
        ended = [(task.id, task.lease_id) for task in sorted(claimed)]
        assert len(ended) == 100
        made: dict[str, Statement[Any]] = {
            "complete": statements.complete(ME, ended, [Completed(None, None)] * 100, []),
            "retry": statements.retry(ME, ended, [RetryIn(1.0, steps.FAILURE)] * 100, []),
            "bury": statements.bury(ME, ended, [Dead("exhausted", steps.FAILURE)] * 100, []),
            "cancelled": statements.cancelled(ME, ended, [Cancelled("no")] * 100, []),
            "release": statements.release(ME, ended, [0.0] * 100, []),
            "beat": statements.beat(ME, lease_s=30.0, lease_ids=[], running=ended, busy=1, draining=False),
        }
        found = analyze(engine, made[name], **plans.ENGINE)
        assert len(session.fetch_all(engine, made[name])) == 1
    read = sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in found
        if node.get("Index Name") == "tasks_pkey"
    )
    assert 100 <= read <= 300, found
