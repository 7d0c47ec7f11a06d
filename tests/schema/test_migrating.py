"""`migrate`, `check` and `require`: what they do, and what they say to a person."""

import re
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgtasks import schema
from pgtasks.errors import (
    ConfigError,
    DatabaseError,
    DatabaseUnavailable,
    SchemaError,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
)
from pgtasks.schema import SchemaState
from tests.access import as_role
from tests.database import Server, rows, value
from tests.schema import snapshot
from tests.schema.conftest import AddRevision, MakeOwner
from tests.schema.revisions import ALL, HEAD, NEXT, STEPS

NOTHING = ("", "")
ODD_SETTINGS = {
    "statement_timeout": "200ms",
    "lock_timeout": "100ms",
    "idle_in_transaction_session_timeout": "300ms",
    "idle_session_timeout": "500ms",
    "TimeZone": "Pacific/Apia",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "search_path": "",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "check_function_bodies": "off",
    "row_security": "off",
}


def test_it_says_each_step_and_then_that_there_is_nothing_to_do(empty_dsn: str) -> None:
    """A second run changes nothing, whatever its number."""
    said: list[str] = []
    done = schema.migrate(empty_dsn, on_progress=said.append)
    assert (done.applied, done.revision) == (ALL, HEAD)
    assert said == STEPS
    again = schema.migrate(empty_dsn, on_progress=said.append)
    assert (again.applied, again.revision) == ((), HEAD)
    assert len(said) == len(STEPS)


def test_partitions_are_there_right_after_it(empty_dsn: str) -> None:
    """A database whose workers start later keeps its first days apart already."""
    schema.migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as connection:
        today = "pgtasks.history_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')"
        assert value(connection, f"SELECT to_regclass('{today}) IS NOT NULL")
        assert value(connection, "SELECT count(*) FROM pgtasks.history_default") == 0


@pytest.mark.parametrize("pooler", ["none", "transaction"])
def test_settings_of_the_role_do_not_matter(make_owner: MakeOwner, empty_dsn: str, pooler: str) -> None:
    """The owner is no superuser; behind a pooler its settings are in force when we connect."""
    dsn = make_owner(**ODD_SETTINGS)
    assert schema.migrate(dsn, pooler=pooler).applied == ALL
    assert schema.check(dsn, pooler=pooler).verdict == "current"
    assert snapshot.difference(snapshot.PATH.read_text(encoding="utf-8"), snapshot.describe(empty_dsn)) == ""
    schema.downgrade(dsn)


def test_a_migration_runs_under_our_own_settings(empty_dsn: str, add_revision: AddRevision) -> None:
    """The linter of migrations takes short timeouts for granted; this is where they come from."""
    names = "lock_timeout", "statement_timeout", "search_path", "TimeZone", "DateStyle", "IntervalStyle"
    columns = ", ".join(f"current_setting('{name}') AS \"{name}\"" for name in names)
    add_revision(f"CREATE TABLE pgtasks.seen AS SELECT {columns}", "DROP TABLE pgtasks.seen")
    schema.migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as connection:
        seen = rows(connection, "SELECT * FROM pgtasks.seen")
    assert seen == [("1s", "10min", "pg_catalog, pg_temp", "UTC", "ISO, MDY", "postgres")]


def test_sql_runs_exactly_as_it_is_written(empty_dsn: str, add_revision: AddRevision) -> None:
    """No percent sign, colon, backslash or brace in a migration means anything to the migrator."""
    text = r"100% %s %(x)s %% :name ::x \d {} {x} $1 ? @x"
    add_revision(f"CREATE TABLE pgtasks.more AS SELECT $t${text}$t$ AS t;\nSELECT 1;", "DROP TABLE pgtasks.more")
    schema.migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as connection:
        assert value(connection, "SELECT t FROM pgtasks.more") == text


def test_a_revision_that_fails_leaves_the_one_before(empty_dsn: str, add_revision: AddRevision) -> None:
    """What it did before it failed is gone too; the message is the server's."""
    schema.migrate(empty_dsn)
    before = snapshot.describe(empty_dsn)
    add_revision("CREATE TABLE pgtasks.more (); SELECT 1 / 0;", "")
    with pytest.raises(DatabaseError, match="division by zero"):
        schema.migrate(empty_dsn)
    assert schema.check(empty_dsn).revision == HEAD
    assert snapshot.difference(before, snapshot.describe(empty_dsn)) == ""


def test_a_missing_schema_says_what_to_run(empty_dsn: str) -> None:
    """So does one in which nothing but the version table is there, and empty."""
    state = schema.check(empty_dsn)
    assert (state.verdict, state.revision) == ("missing", "")
    with pytest.raises(SchemaMissing, match=r"run: pgtasks migrate$"):
        schema.require(state)
    with psycopg.connect(as_role(empty_dsn, "owner")) as connection:
        connection.execute("CREATE SCHEMA pgtasks")
        connection.execute("CREATE TABLE pgtasks.schema_version (version_num varchar(32) NOT NULL)")
    assert schema.check(empty_dsn).verdict == "missing"
    assert schema.migrate(empty_dsn).revision == schema.head()


@pytest.mark.parametrize(
    ("damage", "verdict", "message"),
    [
        ("DELETE FROM pgtasks.schema_version", "unversioned", "has tables but no revision .*restored without"),
        ("DROP TABLE pgtasks.schema_version", "unversioned", "has tables but no revision .*restored without"),
        ("UPDATE pgtasks.schema_version SET version_num = ''", "unversioned", "has tables but no revision"),
        (
            "UPDATE pgtasks.schema_version SET version_num = '0000'",
            "unknown",
            "unknown revision '0000'; .* 0001",
        ),
        ("UPDATE pgtasks.schema_version SET version_num = 'abc'", "unknown", "unknown revision 'abc'"),
    ],
)
@pytest.mark.parametrize("fix", ["its tables are those", "otherwise"])
def test_a_schema_without_a_known_revision_says_both_ways_out(
    empty_dsn: str, damage: str, verdict: str, message: str, fix: str
) -> None:
    """As after a restore of the schema alone; each SQL that is named works as it stands."""
    schema.migrate(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        rows(connection, damage)
    state = schema.check(empty_dsn)
    assert state.verdict == verdict
    with pytest.raises(SchemaError, match=message):
        schema.require(state)
    with pytest.raises(SchemaError, match=message) as caught:
        schema.migrate(empty_dsn)
    said = str(caught.value)
    advice = said[said.index(fix) :].partition(": ")[2]
    with psycopg.connect(as_role(empty_dsn, "owner"), autocommit=True) as connection:
        for statement in re.findall(r"(?:CREATE|DELETE|INSERT|DROP) .*?(?=;)", advice.partition("otherwise")[0]):
            rows(connection, statement)
    schema.migrate(empty_dsn)
    schema.require(schema.check(empty_dsn))
    assert snapshot.difference(snapshot.PATH.read_text(encoding="utf-8"), snapshot.describe(empty_dsn)) == ""


def test_an_older_schema_says_what_to_run(empty_dsn: str, add_revision: AddRevision) -> None:
    """Both revisions are named."""
    schema.migrate(empty_dsn)
    schema.require(schema.check(empty_dsn))
    add_revision(*NOTHING)
    state = schema.check(empty_dsn)
    assert state.verdict == "outdated"
    with pytest.raises(SchemaOutdated, match=rf"at {HEAD}, .* needs {NEXT}; run: pgtasks migrate$"):
        schema.require(state)


def test_a_newer_schema_names_the_release_that_is_needed(
    empty_dsn: str, add_revision: AddRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer pgtasks leaves its version; the older one reads it, and does not migrate either."""
    add_revision(*NOTHING)
    with monkeypatch.context() as newer:
        newer.setattr(schema, "_version", lambda: "3.2.1")
        schema.migrate(empty_dsn)
    monkeypatch.undo()
    state = schema.check(empty_dsn)
    assert state.verdict == "too new"
    message = rf"at {NEXT}, .* only up to {HEAD}; upgrade pgtasks to at least 3\.2\.1$"
    with pytest.raises(SchemaTooNew, match=message):
        schema.require(state)
    with pytest.raises(SchemaTooNew, match=message):
        schema.migrate(empty_dsn)


def test_an_old_server_is_refused(empty_dsn: str, migrations: Path) -> None:
    """By workers, by the migrator, and by the script that a DBA runs."""
    old = replace(schema.check(empty_dsn), server_version=140009)
    with pytest.raises(DatabaseError, match=r"PostgreSQL 14\.9, and pgtasks needs 15 or newer"):
        schema.require(old)
    prologue = migrations / "prologue.sql"
    prologue.write_text(prologue.read_text().replace("150000", "990000"))
    with pytest.raises(DatabaseError, match="needs PostgreSQL 15 or newer, and this is"):
        schema.migrate(empty_dsn)


def test_a_read_only_server_is_refused(empty_dsn: str) -> None:
    """A standby's connection string is a mistake that the message explains; a check works there."""
    read_only = make_conninfo(empty_dsn, options="-c default_transaction_read_only=on")
    assert schema.check(read_only).verdict == "missing"
    with pytest.raises(DatabaseUnavailable, match=r"read-only .*primary") as caught:
        schema.migrate(read_only)
    assert caught.value.sqlstate == "25006"


def test_a_role_without_rights_is_told_so(role_without_rights: str) -> None:
    """The server's own words say which right is missing."""
    with pytest.raises(DatabaseError, match="permission denied for database"):
        schema.migrate(role_without_rights)


@pytest.fixture
def role_without_rights(server: Server, make_owner: MakeOwner, empty_dsn: str) -> str:
    """The address of a database for a role that may only connect."""
    address = make_owner()
    server.alter(empty_dsn, "OWNER TO postgres")
    return address


def test_a_schema_that_the_dba_made_is_enough(server: Server, make_owner: MakeOwner, empty_dsn: str) -> None:
    """The role needs no right to create schemas when it was given this one."""
    address = make_owner()
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA pgtasks AUTHORIZATION "odd owner"')
    server.alter(empty_dsn, "OWNER TO postgres")
    assert schema.migrate(address).applied == ALL


@pytest.mark.parametrize("target", [NEXT, "base", "", "-1", "1"])
def test_an_unknown_target_is_refused(target: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(ConfigError, match="there are: 0001"):
        schema.migrate("host=/nowhere", target=target)


def test_a_password_is_in_no_message() -> None:
    """Neither SQLAlchemy nor alembic ever sees the connection string."""
    with pytest.raises(DatabaseUnavailable) as caught:
        schema.migrate("postgresql://me:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(caught.value)


def test_the_verdict_knows_only_the_revisions_of_this_version() -> None:
    """A higher number was made by a newer version, and anything else is nobody's."""
    state = SchemaState(HEAD, schema.head(), 180000, read_only=False)
    assert state.verdict == "current"
    assert replace(state, revision="").verdict == "missing"
    assert replace(state, revision="0777").verdict == "too new"
    assert replace(state, revision="0000").verdict == replace(state, revision="00010").verdict == "unknown"
    assert replace(state, revision="", has_tables=True).verdict == "unversioned"


def test_migrations_are_found_beside_the_package() -> None:
    """A copy that an editable installation left in site-packages is never read."""
    assert schema.folder() == Path(schema.__file__).parents[1] / "migrations"
