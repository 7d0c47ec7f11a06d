"""The hot statements find their rows by the index they name, with and without statistics and settings."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from pgtasks.outcome import Cancelled, Completed, Dead, Failure, RetryIn
from pgtasks.store import conninfo, looking, reading, statements
from pgtasks.store.session import Statement
from pgtasks.store.statements import Lane
from tests.claims.helpers import ME, analyze, explain
from tests.database import Connection, Server, value

TASKS = 100_000
ENGINE = {"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}
NOW = datetime.now(UTC)
LANES = [Lane(1, NOW, 0), Lane(0, NOW, 0)]
ENDED = [(3_000_000_001, 1), (3_000_000_002, 1)]
FAILURE = Failure("ValueError", "no", "Traceback")


def _hot() -> dict[str, tuple[Statement[Any], str]]:
    """Each hot statement with the index that it must use on tasks."""
    order, key = "tasks_claim_order", "tasks_pkey"
    return {
        "claim": (statements.claim("default", LANES, limit=100, names=["t"], worker_id=ME, lease_s=30), order),
        "rescan": (statements.rescan("default", limit=100, names=["t"], worker_id=ME, lease_s=30), order),
        "suspects": (
            statements.claim_suspects("default", limit=4, names=["t"], worker_id=ME, lease_s=30),
            "tasks_suspects",
        ),
        "counted suspects": (reading.suspects(scan=1000, limit=20), "tasks_suspects"),
        "due": (statements.due_in(["default", "other"], ["t"]), order),
        "left": (looking.left(["default", "other"], ["t"]), order),
        "complete": (statements.complete(ME, ENDED, [Completed(None, None)] * 2, [1]), key),
        "retry": (statements.retry(ME, ENDED, [RetryIn(1.0, FAILURE)] * 2, [1]), key),
        "bury": (statements.bury(ME, ENDED, [Dead("exhausted", FAILURE)] * 2, [1]), key),
        "cancelled": (statements.cancelled(ME, ENDED, [Cancelled("no")] * 2, [1]), key),
        "release": (statements.release(ME, ENDED, [0.0] * 2, [1]), key),
        "sweep": (statements.sweep(datetime(2100, 1, 1, tzinfo=UTC), limit=50), key),
        "unanswered": (statements.unanswered(ME, after=0, known=[2]), key),
    }


HOT = sorted(_hot())


@pytest.fixture(scope="module")
def seeded(server: Server) -> Iterator[dict[str, Connection]]:
    """Two databases with many tasks in two priorities and some leases: analyzed, and without any statistics."""
    opened: dict[str, Connection] = {}
    addresses = []
    for kind in ("analyzed", "not analyzed"):
        addresses.append(server.create(migrated=True))
        # As behind a pooler: no planner settings of ours.
        text = conninfo.complete(addresses[-1], "claim", pooler="transaction")
        opened[kind] = psycopg.connect(text, autocommit=True)
        _seed(opened[kind])
    opened["analyzed"].execute("VACUUM ANALYZE pgtasks.tasks, pgtasks.leases")
    yield opened
    for connection in opened.values():
        connection.close()
    for address in addresses:
        server.drop(address)


def _seed(connection: Connection) -> None:
    connection.execute("ALTER TABLE pgtasks.tasks SET (autovacuum_enabled = off)")
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, priority, run_at) SELECT 't', n %% 2, clock_timestamp() + n * interval '1 ms'"
        " - interval '50 s' FROM generate_series(1, %s) n",
        (TASKS,),
    )
    connection.execute(
        "UPDATE pgtasks.tasks SET losses = 1 WHERE id %% %s = 0 AND run_at <= clock_timestamp()", (TASKS // 400,)
    )
    connection.execute(
        "INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids)"
        " SELECT %s, clock_timestamp() - interval '1 h', ARRAY[3000000000 + n, 3000000001 + n]"
        " FROM generate_series(1, 100) n",
        (ME,),
    )


@pytest.mark.parametrize("settings", [ENGINE, {}], ids=["engine", "pooler"])
@pytest.mark.parametrize("statistics", ["analyzed", "not analyzed"])
@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_reads_tasks_by_its_index(
    seeded: dict[str, Connection], name: str, statistics: str, settings: dict[str, str]
) -> None:
    """The generic plan: no sequential or bitmap scan of tasks, no sort of what a queue holds."""
    statement, index = _hot()[name]
    plan = explain(seeded[statistics], statement, **settings)
    scans = [node for node in plan if node.get("Relation Name") == "tasks" and "Scan" in node["Node Type"]]
    assert scans
    assert "Seq Scan" not in {node["Node Type"] for node in scans}, scans
    used = {
        node["Index Name"]: node["Node Type"]
        for node in plan
        if "Index Name" in node and "tasks_" in node["Index Name"]
    }
    assert index in used
    # A bitmap of single ids is as good as probing each; one of a queue would have to be sorted.
    assert used.get("tasks_claim_order") in {None, "Index Scan", "Index Only Scan"}, used
    # Suspects are few: where nothing is known of the table and nothing is set, they may be sorted.
    # What is counted of them for people is grouped by name, a bounded number of rows.
    if index == "tasks_claim_order" or (name == "suspects" and (settings or statistics == "analyzed")):
        sorts = [node for node in plan if "Sort" in node["Node Type"] and index in str(node)]
        assert not sorts


@pytest.mark.parametrize("settings", [ENGINE, {}], ids=["engine", "pooler"])
@pytest.mark.parametrize("statistics", ["analyzed", "not analyzed"])
@pytest.mark.parametrize("name", ["claim", "rescan", "suspects", "due"])
def test_a_claim_reads_no_more_rows_than_it_takes(
    seeded: dict[str, Connection], name: str, statistics: str, settings: dict[str, str]
) -> None:
    """Executed on a deep backlog, every scan of the queue stops at the limit."""
    connection = seeded[statistics]
    middle = value(connection, "SELECT clock_timestamp() - interval '30 s'")
    lanes = [Lane(1, middle, 0), Lane(0, middle, 0)]
    statement = (
        statements.claim("default", lanes, limit=100, names=["t"], worker_id=ME, lease_s=30)
        if name == "claim"
        else _hot()[name][0]
    )
    plan = analyze(connection, statement, **settings)
    read = [
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in plan
        if node.get("Index Name") in {"tasks_claim_order", "tasks_suspects"}
    ]
    assert read
    few = name == "suspects" and (settings or statistics == "analyzed")
    assert max(read) <= (4 if few else 210), plan
