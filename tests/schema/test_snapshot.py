"""The schema is what its snapshot says, however it came about."""

import os
from pathlib import Path

import psycopg
from alembic.config import Config
from alembic.script import ScriptDirectory

from pgtasks import schema
from tests.database import rows
from tests.schema import snapshot
from tests.schema.conftest import AddRevision
from tests.schema.revisions import ALL, HEAD, NEXT

HINT = f"if that is meant, write the new snapshot: {snapshot.UPDATE}=1 ./dev test -n0 tests/schema/test_snapshot.py"


def test_the_schema_is_the_one_of_the_snapshot(fresh_database: str) -> None:
    """Tables, columns, constraints, indexes, functions, triggers, views and storage options."""
    found = snapshot.describe(fresh_database)
    if os.environ.get(snapshot.UPDATE):
        snapshot.PATH.write_text(found, encoding="utf-8")
    differs = snapshot.difference(snapshot.PATH.read_text(encoding="utf-8"), found)
    assert not differs, f"{differs}\n{HINT}"


def test_up_down_up_leaves_no_difference(empty_dsn: str) -> None:
    """Going down takes everything away, day partitions with rows included."""
    schema.migrate(empty_dsn)
    first = snapshot.describe(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        rows(connection, "SELECT pgtasks.cancel(pgtasks.enqueue('add'))")
    schema.downgrade(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        assert rows(connection, "SELECT to_regnamespace('pgtasks')") == [(None,)]
        assert rows(connection, "SELECT relname FROM pg_class WHERE oid >= 16384 AND relkind IN ('r', 'p', 'S')") == []
    schema.migrate(empty_dsn)
    assert snapshot.difference(first, snapshot.describe(empty_dsn)) == ""


def test_a_difference_is_seen(empty_dsn: str) -> None:
    """The snapshot would not be worth much if it missed one of these."""
    schema.migrate(empty_dsn)
    before = snapshot.describe(empty_dsn)
    changes = [
        "ALTER TABLE pgtasks.tasks SET (fillfactor = 90)",
        "ALTER TABLE pgtasks.tasks ALTER priority SET DEFAULT 1",
        "ALTER TABLE pgtasks.tasks DROP CONSTRAINT attempt_is_not_negative",
        "DROP INDEX pgtasks.tasks_claim_order",
        "ALTER FUNCTION pgtasks.cancel(bigint) SECURITY INVOKER",
        "ALTER FUNCTION pgtasks.pause(text) RESET search_path",
        "GRANT EXECUTE ON FUNCTION pgtasks.retry(bigint) TO public",
        "DROP TRIGGER tasks_inserted ON pgtasks.tasks",
        "DROP VIEW pgtasks.worker_stats",
        "ALTER SEQUENCE pgtasks.tasks_id_seq AS integer",
    ]
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        for change in changes:
            connection.execute(change.encode())
            after = snapshot.describe(empty_dsn)
            assert snapshot.difference(before, after), change
            before = after


def test_every_revision_goes_up_and_down(empty_dsn: str, add_revision: AddRevision) -> None:
    """A step down leads exactly to where the step up came from."""
    schema.migrate(empty_dsn)
    before = snapshot.describe(empty_dsn)
    add_revision("CREATE TABLE pgtasks.more (id bigint)", "DROP TABLE pgtasks.more")
    assert schema.migrate(empty_dsn).applied == (NEXT,)
    assert "more" in snapshot.describe(empty_dsn)
    schema.downgrade(empty_dsn, target=HEAD)
    assert snapshot.difference(before, snapshot.describe(empty_dsn)) == ""


def test_the_revisions_are_one_chain(migrations: Path) -> None:
    """Their numbers are what alembic reads, and every one has its way back."""
    config = Config()
    config.set_main_option("script_location", str(migrations))
    chain = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert chain[::-1] == list(schema.revisions())
    for path in (migrations / "versions").glob("*.up.sql"):
        assert path.with_name(path.name.replace(".up.", ".down.")).exists()
        assert path.with_name(path.name.replace(".up.sql", ".py")).exists()


def test_every_real_revision_goes_up_and_down(empty_dsn: str) -> None:
    """From nothing to the newest one by one, and back: each step down leads to where its step up came from."""
    states = [snapshot.describe(empty_dsn)]
    for number in ALL:
        assert schema.migrate(empty_dsn, target=number).applied == (number,)
        states.append(snapshot.describe(empty_dsn))
    for number, before in zip([*ALL[-2::-1], schema.BASE], states[-2::-1], strict=True):
        schema.downgrade(empty_dsn, target=number)
        assert snapshot.difference(before, snapshot.describe(empty_dsn)) == ""
