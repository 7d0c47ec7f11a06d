"""What the facts cost their database: one statement, whose plan does not depend on what the planner believes."""

from typing import Any

import psycopg
import pytest

from pgtasks.store import facts
from pgtasks.store.conninfo import Part
from pgtasks.store.facts import read_facts
from pgtasks.store.session import connect
from tests.cli.test_status_of_big_tables import most_read
from tests.database import rows, value

pytestmark = pytest.mark.pg
TASKS = 30_000


def test_facts_are_one_statement(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One round trip, one snapshot: figures that belong together."""
    asked = []

    class Counting(psycopg.Cursor[object]):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            asked.append(query)
            return super().execute(query, *args, **options)

    with connect(dsn, "metrics") as reader:
        monkeypatch.setattr(psycopg, "Cursor", Counting)
        read_facts(reader)
    assert len(asked) == 1


@pytest.mark.parametrize("part", ["cli", "metrics"])
def test_nothing_is_compiled(dsn: str, part: Part) -> None:
    """What is read is bounded; the planner thinks that it is not, and compiling takes longer than reading."""
    with connect(dsn, part) as reader:
        assert value(reader, "SHOW jit") == "off"


@pytest.mark.parametrize("pooler", ["none", "transaction"])
def test_what_facts_read_does_not_depend_on_statistics(
    fresh_database: str, pooler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows nothing of one table, and of another that it has one queue; also where a pooler takes no settings."""
    # So few that most readings see nothing of the smaller queue, which is counted then.
    monkeypatch.setattr(facts, "PAGES", 2)
    monkeypatch.setattr(facts, "COUNTED_MAX", 3000)
    with (
        psycopg.connect(fresh_database, autocommit=True) as owner,
        connect(fresh_database, "metrics", pooler=pooler) as reader,
    ):
        for table in ("tasks", "dead_letters"):
            owner.execute(f"ALTER TABLE pgtasks.{table} SET (autovacuum_enabled = off)".encode())
        rows(owner, "INSERT INTO pgtasks.tasks (name, queue) SELECT 'a', 'big' FROM generate_series(1, %s)", TASKS)
        rows(owner, "INSERT INTO pgtasks.tasks (name, queue) SELECT 'a', 'late' FROM generate_series(1, 6000)")
        rows(owner, "INSERT INTO pgtasks.queues (name) VALUES ('zero')")
        rows(
            owner,
            "INSERT INTO pgtasks.dead_letters (id, queue, name, payload, attempt, priority, run_at, created_at, reason)"
            " SELECT g, 'big', 'a', '{}', 1, 0, now(), now(), 'exhausted' FROM generate_series(1, %s) g",
            TASKS,
        )
        owner.execute("ANALYZE pgtasks.dead_letters")
        assert max(most_read(reader, facts.facts()) for _ in range(5)) <= facts.DEAD_MAX
        assert value(owner, "SELECT reltuples FROM pg_class WHERE oid = 'pgtasks.tasks'::regclass") == -1
        found = read_facts(reader).queues
    assert found["late"].tasks["queued"] >= facts.COUNTED_MAX // 3
    assert found["big"].dead_letters >= facts.DEAD_MAX // 3
    assert found["zero"].tasks["queued"] == found["zero"].dead_letters == 0
