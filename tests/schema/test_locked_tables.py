"""A migration never makes the workers wait for long, whoever holds a lock on what it changes."""

import threading
import time
from uuid import uuid4

import psycopg
import pytest

from pgtasks import schema
from pgtasks.errors import DatabaseError
from pgtasks.model import tasks_of
from pgtasks.store import session, statements
from tests.access import ROLES, as_role
from tests.database import Connection, Server, wait_until
from tests.schema.conftest import AddRevision
from tests.schema.revisions import HEAD, NEXT

UP, DOWN = "ALTER TABLE pgtasks.tasks ADD COLUMN more integer", "ALTER TABLE pgtasks.tasks DROP COLUMN more"
CLAIM_S_MAX = 2.0


def claim(connection: Connection) -> float:
    """Claim one task with the worker's own statement and return how long that took, in seconds."""
    started = time.monotonic()
    claimed = session.fetch_all(
        connection, statements.rescan("default", limit=1, names=["add"], worker_id=uuid4(), lease_s=30)
    )
    assert len(tasks_of(claimed)) == 1
    return time.monotonic() - started


def test_claims_go_on_while_a_reader_keeps_a_migration_waiting(fresh_database: str, add_revision: AddRevision) -> None:
    """D-08: the migration gives way after a second, names the reader, and succeeds when it has gone."""
    add_revision(UP, DOWN)
    said: list[str] = []
    migration = threading.Thread(target=schema.migrate, args=(fresh_database,), kwargs={"on_progress": said.append})
    # Of what another role's session does the migrator sees nothing.
    address = as_role(fresh_database, "owner")
    with psycopg.connect(address) as reader, psycopg.connect(fresh_database, autocommit=True) as worker:
        worker.execute("INSERT INTO pgtasks.tasks (name) SELECT 'add' FROM generate_series(1, 10000)")
        reader.execute("SELECT count(*) /* a long report */ FROM pgtasks.tasks")
        pid = reader.info.backend_pid
        migration.start()
        slowest = 0.0
        deadline = time.monotonic() + 15
        while len(said) < 4 and time.monotonic() < deadline:
            slowest = max(slowest, claim(worker))
        assert schema.check(fresh_database).revision == HEAD
    migration.join(15)
    assert 0.3 < slowest < CLAIM_S_MAX
    expected = f"trying {NEXT} again in a moment: pid {pid} () is in the way: idle in transaction"
    assert all(line.startswith(expected.replace("()", "(client backend)")) for line in said[1:]), said
    assert "last statement: SELECT count(*) /* a long report */ FROM pgtasks.tasks" in said[-1]
    assert schema.check(fresh_database).revision == NEXT


def test_it_gives_up_in_the_end_and_names_who_is_in_the_way(fresh_database: str, add_revision: AddRevision) -> None:
    """Nothing has changed then; control characters of the other's statement do not get through."""
    add_revision(UP, DOWN)
    with psycopg.connect(as_role(fresh_database, "owner")) as holder:
        holder.execute("LOCK TABLE pgtasks.tasks IN SHARE MODE /* \x1b[31m\u202e */")
        pid = holder.info.backend_pid
        with pytest.raises(DatabaseError, match=rf"no lock within 0\.5 s, pid {pid} .*; end that session") as caught:
            schema.migrate(fresh_database, lock_wait_s=0.5)
    assert caught.value.sqlstate == "55P03"
    assert str(caught.value).isprintable()
    assert schema.check(fresh_database).revision == HEAD


def test_who_is_in_the_way_may_be_hidden(fresh_database: str, add_revision: AddRevision) -> None:
    """PostgreSQL shows an owner of the schema, who is no more than that, whose session it is, not what it does."""
    add_revision(UP, DOWN)
    with psycopg.connect(as_role(fresh_database, "worker")) as holder:
        holder.execute("SELECT FROM pgtasks.tasks")
        said = rf"pid {holder.info.backend_pid} of role {ROLES['worker']} is in the way; what .* members of pg_monitor"
        with pytest.raises(DatabaseError, match=said):
            schema.migrate(fresh_database, lock_wait_s=0.5)


def test_a_deadlock_with_somebody_is_tried_again(
    fresh_database: str, server: Server, add_revision: AddRevision
) -> None:
    """PostgreSQL ends one of the two, and it may be the migration."""
    add_revision(
        "LOCK TABLE pgtasks.queues;SET LOCAL lock_timeout = 0; LOCK TABLE pgtasks.task_types;",
        "",
    )
    # Set for the database, because a migrator may not set it.
    server.alter(fresh_database, "SET deadlock_timeout = '50ms'")
    said: list[str] = []
    migration = threading.Thread(target=schema.migrate, args=(fresh_database,), kwargs={"on_progress": said.append})
    with psycopg.connect(fresh_database) as other:
        other.execute("SET LOCAL deadlock_timeout = '1min'")
        other.execute("LOCK TABLE pgtasks.task_types")
        migration.start()
        wait_until(lambda: is_locked(fresh_database, "pgtasks.queues"))
        other.execute("LOCK TABLE pgtasks.queues")
    migration.join(10)
    assert any(line.startswith(f"trying {NEXT} again") for line in said)
    assert schema.check(fresh_database).revision == NEXT


def test_a_migrator_is_never_in_its_own_way(fresh_database: str, add_revision: AddRevision) -> None:
    """Its second connection, which is there for the lock of the only migrator, holds no table."""
    add_revision("LOCK TABLE pgtasks.schema_version", "")
    said: list[str] = []
    schema.migrate(fresh_database, on_progress=said.append)
    assert said == [f"migrating to {NEXT}: more"]


def is_locked(dsn: str, table: str) -> bool:
    """Whether somebody holds the strongest lock on a table."""
    query = "SELECT 1 FROM pg_locks WHERE relation = %s::regclass AND mode = 'AccessExclusiveLock' AND granted"
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query, (table,)).fetchone() is not None
