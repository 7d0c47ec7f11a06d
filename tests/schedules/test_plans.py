"""How PostgreSQL finds schedules and fires: by their keys, also where a vacuum found hardly any."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from bench import plans
from pgtasks.firing import Plan, Slot
from pgtasks.schedules import definition
from pgtasks.store import conninfo, scheduling
from pgtasks.store.session import Statement
from tests.claims.helpers import explain
from tests.database import Connection, value
from tests.schedules.helpers import connect

NOW = datetime.now(UTC)
TABLES = ("schedules", "schedule_fires")
FILL = {
    "schedules": "INSERT INTO pgtasks.schedules (name, expression, timezone, task)"
    " SELECT 's' || n, '@daily', 'UTC', 't' FROM generate_series(1, 5000) n",
    "schedule_fires": "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome)"
    " SELECT 's' || n, now() - n * interval '1 min', 'missed' FROM generate_series(1, 20000) n",
}
STATEMENTS: dict[str, Statement[Any]] = {
    "fire": scheduling.fire([Plan("s1", NOW, NOW, NOW, (Slot(NOW, "fired"),))] * 2, locked=True),
    "sync": scheduling.sync("shop:app", [definition("s1", "@daily", "t"), definition("s2", "@daily", "t")]),
}


@pytest.fixture
def nearly_empty(connection: Connection) -> Iterator[None]:
    """Many of both, and statistics from when there was one of each, in the last page."""
    for table in TABLES:
        connection.execute(f"TRUNCATE pgtasks.{table}".encode())
        connection.execute(f"ALTER TABLE pgtasks.{table} SET (autovacuum_enabled = off)".encode())
        connection.execute(FILL[table].encode())
        connection.execute(f"DELETE FROM pgtasks.{table} WHERE ctid < (SELECT max(ctid) FROM pgtasks.{table})".encode())
        connection.execute(f"VACUUM (ANALYZE) pgtasks.{table}".encode())
        said = f"SELECT reltuples = 1 AND relpages >= 50 FROM pg_class WHERE oid = 'pgtasks.{table}'::regclass"
        assert value(connection, said)
        connection.execute(f"{FILL[table]} ON CONFLICT DO NOTHING".encode())
    yield
    for table in TABLES:
        connection.execute(f"ALTER TABLE pgtasks.{table} RESET (autovacuum_enabled)".encode())
        connection.execute(f"TRUNCATE pgtasks.{table}".encode())


@pytest.mark.usefixtures("nearly_empty")
@pytest.mark.parametrize("settings", [plans.ENGINE, {"plan_cache_mode": "force_custom_plan"}], ids=["engine", "pooler"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_schedules_are_found_by_their_names(dsn: str, name: str, settings: dict[str, str]) -> None:
    """A scan of the whole table or index for each batch takes seconds with some thousand schedules."""
    pooler = "transaction" if settings is not plans.ENGINE else "none"
    with psycopg.connect(conninfo.complete(dsn, "schedule", pooler=pooler), autocommit=True) as opened:
        found = explain(opened, STATEMENTS[name], **settings)
    reads = [node for node in found if "Scan" in node["Node Type"] and "Relation Name" in node]
    assert any(node["Relation Name"] == "schedules" for node in reads)
    whole = [node for node in reads if node["Relation Name"] in TABLES and "Index Cond" not in node]
    # The names that the code no longer has are looked for once, among all.
    assert len(whole) <= (name == "sync"), whole


@pytest.mark.usefixtures("nearly_empty")
def test_old_fires_are_found_at_once(dsn: str) -> None:
    """Which is how a batch of them is deleted: by their places."""
    with connect(dsn) as opened:
        found = explain(opened, scheduling.prune_fires(keep_days=30, limit=5000), **plans.ENGINE)
    reads = [node for node in found if node.get("Relation Name") == "schedule_fires" and "Scan" in node["Node Type"]]
    assert [node.get("Index Name", node["Node Type"]) for node in reads] == ["schedule_fires_fire_time", "Tid Scan"]
