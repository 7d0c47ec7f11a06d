"""D-05: each setting that a role may have, one by one: worker and commands work, or say which it is."""

import time
from typing import LiteralString

import pytest
from psycopg import sql

from tests.cli.conftest import Run
from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.leases.roles import worker_role

ROLE = "matrix_worker"
# Behind a pooler one by one, because there they are in force: we set none of our own.
ROWS = [
    {"statement_timeout": "200ms"},
    {"lock_timeout": "100ms"},
    {"idle_in_transaction_session_timeout": "300ms"},
    {"idle_session_timeout": "500ms"},
    {"TimeZone": "Asia/Kathmandu"},
    {"DateStyle": "SQL, DMY"},
    {"IntervalStyle": "sql_standard"},
    {"bytea_output": "escape"},
    {"search_path": ""},
    {"default_transaction_isolation": "serializable"},
    {"client_encoding": "LATIN1", "standard_conforming_strings": "off"},
]
ALL = {name: text for row in ROWS for name, text in row.items()}
COMMANDS = (
    ("enqueue", "later", "{}", "--delay=1h"),
    ("tasks", "list"),
    ("status",),
    ("schedules", "list"),
    ("migrate", "--check"),
)


def change(connection: Connection, how: LiteralString, settings: dict[str, str]) -> None:
    """Change settings of the role, and let them be in force everywhere."""
    for name, text in settings.items():
        clause = sql.SQL(how).format(sql.Identifier(name), sql.Literal(text))
        connection.execute(sql.SQL("ALTER ROLE {} ").format(sql.Identifier(ROLE)) + clause)
    rows(connection, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{ROLE}'")


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("pooler", "matrix"), [("none", [ALL]), ("transaction", ROWS)])
def test_each_setting_by_itself(
    pooler: str,
    matrix: list[dict[str, str]],
    connection: Connection,
    start_worker: StartWorker,
    offline: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One worker through all of them."""
    monkeypatch.setenv("PGTASKS_POOLER", pooler)
    with worker_role(connection, ROLE, {}) as address:
        worker = start_worker(f"--pooler={pooler}", address=address)
        worker.wait_output("worker started")
        for row in matrix:
            change(connection, "SET {} = {}", row)
            task_id = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 0}')""")
            wait_until(
                lambda: value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE run_at <= now()") == 0,
                hint=worker.output,
            )
            assert steps.status(connection, task_id) == "completed"
            for command in COMMANDS:
                ran = offline(*command, "--dsn", address)
                assert ran.code == 0, f"{row}: {command}: {ran.err}"
            change(connection, "RESET {}", row)
        wait_until(lambda: "part failed" not in worker.output())
        worker.terminate()
        assert worker.wait() == 0, worker.output()
    assert rows(connection, "SELECT * FROM pgtasks.attempts") == []


def test_a_read_only_default_is_named(connection: Connection, offline: Run) -> None:
    """The one that nobody can work with: commands that write, and a migration, say what it may be."""
    with worker_role(connection, ROLE, {"default_transaction_read_only": "on"}) as address:
        for command in (("enqueue", "later", "{}"), ("schedules", "add", "s", "@daily", "later"), ("migrate",)):
            ran = offline(*command, "--dsn", address)
            assert ran.code == 4, (command, ran.out, ran.err)
            assert "default_transaction_read_only" in ran.err
        assert offline("status", "--dsn", address).code == 0


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_silent_handler_holds_no_transaction_open(connection: Connection, start_worker: StartWorker) -> None:
    """While it does nothing for seconds, no session of the worker is in a transaction."""
    worker = start_worker()
    worker.wait_ready()
    value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 2}')""")
    wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'running'"))
    held = (
        "SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::float FROM pg_stat_activity"
        " WHERE application_name LIKE 'pgtasks/%'"
    )
    until, ages = time.monotonic() + 1.5, [0.0]
    while time.monotonic() < until:
        ages.append(value(connection, held) or 0.0)
    assert max(ages) < 1.0
