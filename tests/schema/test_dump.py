"""A dump of the database loads into a new one, and the queue goes on there."""

import subprocess
from pathlib import Path

import psycopg
import pytest

from pgtasks import schema
from tests.database import Server, rows, value
from tests.schema import snapshot

CONTENT = "SELECT id, name, status, payload, finished_at FROM pgtasks.all_tasks ORDER BY id"


@pytest.mark.parametrize("kind", ["plain", "custom"])
def test_a_dump_loads_and_works(server: Server, fresh_database: str, empty_dsn: str, tmp_path: Path, kind: str) -> None:
    """X-03: pg_dump writes with an empty search_path, which is where unqualified names come to light."""
    fill(fresh_database)
    dump = tmp_path / "dump"
    run(server.program("pg_dump"), f"--format={kind}", f"--file={dump}", fresh_database)
    if kind == "plain":
        run(server.program("psql"), "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={dump}", empty_dsn)
    else:
        run(server.program("pg_restore"), "--exit-on-error", f"--dbname={empty_dsn}", dump)
    assert snapshot.difference(snapshot.describe(fresh_database), snapshot.describe(empty_dsn)) == ""
    assert content(empty_dsn) == content(fresh_database)
    schema.require(schema.check(empty_dsn))
    assert schema.migrate(empty_dsn).applied == ()
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        newest = value(connection, "SELECT max(id) FROM pgtasks.all_tasks")
        assert value(connection, "SELECT pgtasks.enqueue('add')") > newest
        assert value(connection, "SELECT count(*) FROM pgtasks.history_default") == 0


def fill(dsn: str) -> None:
    """Put a task into each table."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows(connection, "SELECT pgtasks.enqueue('add', '{\"a\": \"\\u00e4 %s \\\\ '' \"}', unique_key => 'k')")
        rows(connection, "SELECT pgtasks.cancel(pgtasks.enqueue('gone'))")
        rows(connection, "SELECT pgtasks.pause('q')")
        connection.execute(
            "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, attempt, priority, reason, queue, name, payload)"
            " SELECT nextval('pgtasks.tasks_id_seq'), now(), now(), 3, 0, 'exhausted', 'default', 'dead', '[1]'"
        )


def content(dsn: str) -> list[tuple[object, ...]]:
    """Return every task of a database."""
    with psycopg.connect(dsn) as connection:
        found = rows(connection, CONTENT)
    assert {row[2] for row in found} == {"queued", "cancelled", "dead"}
    return found


def run(*command: str | Path) -> None:
    """Run a client program of PostgreSQL; what it printed is in the message of a failure."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
