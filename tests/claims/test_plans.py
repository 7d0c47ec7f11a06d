"""The hot statements find their rows by the index they name, with and without statistics and settings."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from bench.plans import ENGINE, hot, seed
from pgtasks.store import conninfo, facts, reading, statements
from pgtasks.store.session import Statement
from pgtasks.store.statements import Lane
from tests.claims.helpers import ME, analyze, explain
from tests.database import Connection, Server, value

TASKS = 100_000
HOT = sorted(hot())
LOOKS: dict[str, Statement[Any]] = {
    "queues": reading.queues(limit=100),
    "facts": facts.facts(),
    "view": Statement("SELECT * FROM pgtasks.queue_stats", {}, tuple),
}


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
        with psycopg.connect(addresses[-1], autocommit=True) as seeding:
            seed(seeding, TASKS)
            if kind == "analyzed":
                seeding.execute("VACUUM ANALYZE pgtasks.tasks, pgtasks.leases")
    yield opened
    for connection in opened.values():
        connection.close()
    for address in addresses:
        server.drop(address)


@pytest.mark.parametrize("settings", [ENGINE, {}], ids=["engine", "pooler"])
@pytest.mark.parametrize("statistics", ["analyzed", "not analyzed"])
@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_reads_tasks_by_its_index(
    seeded: dict[str, Connection], name: str, statistics: str, settings: dict[str, str]
) -> None:
    """The generic plan: no sequential or bitmap scan of tasks, no sort of what a queue holds."""
    statement, index = hot()[name]
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
        else hot()[name][0]
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


@pytest.mark.parametrize("settings", [ENGINE, {}], ids=["engine", "pooler"])
@pytest.mark.parametrize("statistics", ["analyzed", "not analyzed"])
@pytest.mark.parametrize("name", sorted(LOOKS))
def test_all_queues_are_found_without_reading_their_tasks(
    seeded: dict[str, Connection], name: str, statistics: str, settings: dict[str, str]
) -> None:
    """The index is partial: also the look for the first queue has to say what makes it usable."""
    plan = explain(seeded[statistics], LOOKS[name], **settings)
    scans = [node for node in plan if node.get("Relation Name") == "tasks"]
    assert "Seq Scan" not in {node["Node Type"] for node in scans}, scans
    first = [node.get("Index Name") for node in scans if ">= ''" in node.get("Index Cond", "")]
    assert first == ["tasks_claim_order"], scans
