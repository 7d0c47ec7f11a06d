"""The script for a DBA makes the very schema that `pgtasks migrate` makes."""

import subprocess
from pathlib import Path

import psycopg
import pytest

from pgtasks import schema
from pgtasks.errors import ConfigError
from tests.access import as_role
from tests.database import Server, value
from tests.schema import snapshot
from tests.schema.conftest import AddRevision
from tests.schema.revisions import FIRST, HEAD, NEXT

Psql = list[str]


@pytest.fixture
def psql(server: Server) -> Psql:
    """The command of psql as the documentation shows it."""
    return [server.program("psql"), "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--quiet"]


def run(command: Psql, script: str, dsn: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Feed a script to psql, as the role that owns the database."""
    argv = [*command, *flags, as_role(dsn, "owner")]
    return subprocess.run(argv, input=script, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("flags", [(), ("--single-transaction",)], ids=["plain", "single transaction"])
def test_it_makes_the_same_schema(empty_dsn: str, psql: Psql, flags: tuple[str, ...]) -> None:
    """Version and partitions included, so that workers start and a later migrate goes on from there."""
    done = run(psql, schema.script(), empty_dsn, *flags)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    assert snapshot.difference(snapshot.PATH.read_text(encoding="utf-8"), snapshot.describe(empty_dsn)) == ""
    assert schema.check(empty_dsn).verdict == "current"
    with psycopg.connect(empty_dsn) as connection:
        count = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'pgtasks.history'::regclass"
        assert value(connection, count) == 5


def test_a_script_goes_on_from_where_the_schema_stands(empty_dsn: str, psql: Psql, add_revision: AddRevision) -> None:
    """It holds only what is missing, and leaves the same version as an online migration."""
    schema.migrate(empty_dsn)
    add_revision("CREATE TABLE pgtasks.more (percent text DEFAULT '100% %s :x')", "DROP TABLE pgtasks.more")
    script = schema.script(HEAD)
    assert "CREATE TABLE pgtasks.tasks" not in script
    done = run(psql, script, empty_dsn)
    assert done.returncode == 0, done.stderr
    offline = snapshot.describe(empty_dsn)
    assert schema.check(empty_dsn).revision == NEXT
    schema.downgrade(empty_dsn, target=HEAD)
    schema.migrate(empty_dsn)
    assert snapshot.difference(snapshot.describe(empty_dsn), offline) == ""


@pytest.mark.parametrize("flags", [(), ("--set=ON_ERROR_STOP=0",)], ids=["stops", "runs on"])
def test_a_script_for_another_state_changes_nothing(
    empty_dsn: str, psql: Psql, add_revision: AddRevision, flags: tuple[str, ...]
) -> None:
    """Neither twice, nor past a revision; and psql may even ignore the error."""
    first = schema.script()
    add_revision("CREATE TABLE pgtasks.more ()", "DROP TABLE pgtasks.more")
    too_early = run(psql, schema.script(HEAD), empty_dsn, *flags)
    assert f'continues from revision "{HEAD}", and the schema is at ""' in too_early.stderr
    assert snapshot.describe(empty_dsn) == ""
    assert run(psql, first, empty_dsn).returncode == 0
    before = snapshot.describe(empty_dsn)
    twice = run(psql, first, empty_dsn, *flags)
    assert f'continues from revision "", and the schema is at "{HEAD}"' in twice.stderr
    assert snapshot.difference(before, snapshot.describe(empty_dsn)) == ""


def test_the_script_holds_each_migration_verbatim() -> None:
    """What was reviewed and linted is what a DBA gets."""
    script = schema.script()
    for path in (schema.folder() / "versions").glob("*.up.sql"):
        assert path.read_text(encoding="utf-8").strip() in script
    assert script.index("BEGIN;") < script.index("SET LOCAL") < script.index("CREATE TABLE")


@pytest.mark.parametrize(("start", "end"), [(NEXT, "head"), ("", NEXT), (FIRST, FIRST), ("'; --", "head")])
def test_revisions_that_make_no_script_are_refused(start: str, end: str) -> None:
    """The message names those that exist."""
    with pytest.raises(ConfigError, match=r"there are: 0001|nothing between revisions 0001 and 0001"):
        schema.script(start, end)


def test_it_needs_no_server_and_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works in any folder, without any variable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGTASKS_DSN", "host=/nowhere")
    assert schema.script().startswith("-- pgtasks ")
