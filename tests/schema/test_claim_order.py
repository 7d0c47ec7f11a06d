"""Migration 0009 builds the index of claims anew: no claim may be without one, whoever is at what just then."""

from uuid import UUID

import psycopg
import pytest

from pgtasks import schema
from pgtasks.errors import DatabaseError
from pgtasks.store import session, statements
from tests.claims.helpers import explain
from tests.database import Connection, Server, rows

BEFORE = "0008"
ME = UUID(int=1)


@pytest.fixture
def claimed(fresh_database: str) -> str:
    """A database of the revision before, with tasks, of which some are claimed and some were given back."""
    schema.downgrade(fresh_database, target=BEFORE)
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        rows(connection, "INSERT INTO pgtasks.tasks (name) SELECT 'a' FROM generate_series(1, 5000)")
        session.fetch_all(connection, statements.rescan("default", limit=500, names=["a"], worker_id=ME, lease_s=30))
    return fresh_database


def index_of_claims(connection: Connection) -> set[object]:
    """Give the indexes that a look from the head would read the queue by."""
    found = explain(connection, statements.rescan("default", limit=10, names=["a"], worker_id=ME, lease_s=30))
    return {node["Index Name"] for node in found if "queue" in node.get("Index Cond", "")}


def test_it_waits_for_transactions_that_wrote_before_it(claimed: str, server: Server) -> None:
    """While one goes on, in any database, PostgreSQL would use the new index for nobody."""
    with (
        psycopg.connect(server.dsn_for("postgres"), application_name="report\x1b[31m") as writer,
        psycopg.connect(claimed, autocommit=True) as worker,
    ):
        writer.execute("SELECT pg_current_xact_id()")
        said = rf"no lock within 0\.1 s, a transaction that wrote .* pid {writer.info.backend_pid} .* database postgres"
        with pytest.raises(DatabaseError, match=said) as refused:
            schema.migrate(claimed, target="0009", lock_wait_s=0.1)
        assert str(refused.value).isprintable()
        assert schema.check(claimed).revision == BEFORE
        assert index_of_claims(worker) == {"tasks_claim_order"}
        writer.rollback()
        schema.migrate(claimed, target="0009")
        writer.execute("SELECT pg_current_xact_id()")
        assert index_of_claims(worker) == {"tasks_claim_order"}


def test_it_does_not_wait_where_there_was_never_a_task(empty_dsn: str, server: Server) -> None:
    """A new database is made while somebody's long transaction goes on elsewhere."""
    with psycopg.connect(server.dsn_for("postgres")) as writer:
        writer.execute("SELECT pg_current_xact_id()")
        assert schema.migrate(empty_dsn, lock_wait_s=0.1).revision == schema.head()


def test_it_gives_way_to_a_reader_of_the_view(claimed: str) -> None:
    """Who reads it again meanwhile is not held up, and the migration names who was in its way."""
    with psycopg.connect(claimed) as reader, psycopg.connect(claimed, autocommit=True) as worker:
        reader.execute("SELECT count(*) FROM pgtasks.queue_stats")
        with pytest.raises(DatabaseError, match=f"pid {reader.info.backend_pid} ") as refused:
            schema.migrate(claimed, target="0009", lock_wait_s=0.1)
        assert refused.value.sqlstate == "55P03"
        reader.execute("SELECT count(*) FROM pgtasks.queue_stats")
        assert index_of_claims(worker) == {"tasks_claim_order"}
    assert schema.migrate(claimed, target="0009").revision == "0009"
