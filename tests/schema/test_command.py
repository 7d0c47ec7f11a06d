"""`pgtasks migrate` as a person, a DBA and a deployment script use it."""

import json
import subprocess
from pathlib import Path

import psycopg
import pytest

from pgtasks import schema
from tests import workers
from tests.database import rows
from tests.schema import snapshot
from tests.schema.revisions import ALL, HEAD, STEPS

MIGRATORS = 10


def migrate(dsn: str | None, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [workers.program(), "migrate", *flags]
    return subprocess.run(command, env=workers.environment(dsn, "owner"), capture_output=True, text=True, check=False)


def test_it_makes_the_schema_and_then_has_nothing_to_do(empty_dsn: str) -> None:
    """Progress goes to the standard error stream, the result to the standard output."""
    first = migrate(empty_dsn)
    assert (first.returncode, first.stdout) == (0, f"the schema is at {HEAD} now\n")
    assert first.stderr.splitlines() == STEPS
    again = migrate(empty_dsn)
    assert (again.returncode, again.stdout, again.stderr) == (0, f"the schema is already at {HEAD}\n", "")


def test_json_is_one_document(empty_dsn: str) -> None:
    """A deployment script reads what was done."""
    assert json.loads(migrate(empty_dsn, "--json").stdout) == {"revision": HEAD, "applied": [*ALL]}
    assert json.loads(migrate(empty_dsn, "--json").stdout) == {"revision": HEAD, "applied": []}


def test_a_check_tells_by_its_exit_code_and_changes_nothing(empty_dsn: str) -> None:
    """0 for the schema that is needed, 5 for any other."""
    missing = migrate(empty_dsn, "--check")
    assert (missing.returncode, missing.stdout) == (5, "")
    assert missing.stderr.endswith("run: pgtasks migrate\n")
    assert json.loads(migrate(empty_dsn, "--check", "--json").stdout)["verdict"] == "missing"
    assert snapshot.describe(empty_dsn) == ""
    schema.migrate(empty_dsn)
    current = migrate(empty_dsn, "--check")
    assert (current.returncode, current.stdout) == (0, f"the schema is at {HEAD}, as this version needs\n")
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("UPDATE pgtasks.schema_version SET version_num = '0777'")
    too_new = migrate(empty_dsn, "--check", "--json")
    assert too_new.returncode == 5
    assert json.loads(too_new.stdout)["verdict"] == "too new"
    refused = migrate(empty_dsn)
    assert refused.returncode == 5
    assert "upgrade pgtasks to the version that migrated it" in refused.stderr


def test_sql_is_the_script_and_nothing_else(tmp_path: Path) -> None:
    """It can be piped into psql; no database is named anywhere."""
    printed = migrate("host=/nowhere", "--sql")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout == schema.script()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sql", "--check"], "leave out --check"),
        (["--sql", "--json"], "leave out --json"),
        (["--from", "0001"], "--from goes with --sql"),
        (["--sql", "--from", "0010"], f"there is no revision '0010'; there are: {', '.join(ALL)}"),
        (["--dsn", "postgresql://["], "cannot be read"),
        (["--frobnicate"], "no such option"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(flags: list[str], message: str) -> None:
    """The message says what would be right; nothing was connected to."""
    refused = migrate("host=/nowhere", *flags)
    assert refused.returncode == 2
    assert message in refused.stderr.lower()
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("flags", [(), ("--check",)])
def test_an_unreachable_server_is_exit_code_4(flags: tuple[str, ...]) -> None:
    """The address is named, the password is not."""
    refused = migrate("postgresql://me:hunter2@127.0.0.1:1/x", *flags)
    assert refused.returncode == 4
    assert "127.0.0.1" in refused.stderr
    assert "hunter2" not in refused.stderr


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_ten_at_once_on_an_empty_database_all_succeed(empty_dsn: str, tmp_path: Path) -> None:
    """X-04: one of them applies the revision, the others wait and find nothing to do."""
    logs = [tmp_path / f"{number}.log" for number in range(MIGRATORS)]
    processes = []
    for log in logs:
        with log.open("wb") as output:
            command = [workers.program(), "migrate"]
            processes.append(workers.start(command, workers.environment(empty_dsn, "owner"), output.fileno()))
    codes = [process.wait(50) for process in processes]
    outputs = [log.read_text(encoding="utf-8") for log in logs]
    assert codes == [0] * MIGRATORS, outputs
    assert sum(f"the schema is at {HEAD} now" in output for output in outputs) == 1, outputs
    assert sum(f"the schema is already at {HEAD}" in output for output in outputs) == MIGRATORS - 1, outputs
    assert snapshot.difference(snapshot.PATH.read_text(encoding="utf-8"), snapshot.describe(empty_dsn)) == ""
    with psycopg.connect(empty_dsn) as connection:
        assert rows(connection, "SELECT version_num FROM pgtasks.schema_version") == [(HEAD,)]
