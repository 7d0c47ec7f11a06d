"""The fixtures themselves: a dirty database is clean for the next test."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.database import FIRST_ID, ROOT, Connection, rows, value, wait_until
from tests.embedded.processes import alive
from tests.workers import WorkerProcess


@pytest.mark.parametrize("turn", [1, 2])
def test_every_test_starts_with_empty_tables(dsn: str, connection: Connection, turn: int) -> None:
    """Both turns insert, and both find nothing but their own row, with a large id."""
    value(connection, "SELECT pgtasks.enqueue('add', '{}', queue => %s)", f"turn {turn}")
    assert rows(connection, "SELECT queue FROM pgtasks.tasks") == [(f"turn {turn}",)]
    assert value(connection, "SELECT id FROM pgtasks.tasks") >= FIRST_ID


@pytest.mark.parametrize("turn", [1, 2])
def test_a_transaction_that_was_left_open_does_not_block_the_next_test(dsn: str, turn: int) -> None:
    """Its connection is ended before the tables are emptied."""
    leaked = psycopg.connect(dsn)
    leaked.execute("LOCK TABLE pgtasks.tasks")
    _LEAKED.append(leaked)
    if turn == 2:
        for each in _LEAKED:
            each.close()


_LEAKED: list[Connection] = []


def test_an_empty_database_has_no_schema(empty_dsn: str) -> None:
    """Migrations start from nothing."""
    with psycopg.connect(empty_dsn) as connection:
        assert value(connection, "SELECT to_regnamespace('pgtasks')") is None


def test_a_fresh_database_is_its_own(fresh_database: str, dsn: str) -> None:
    """It has the schema, and is not the shared one."""
    assert fresh_database != dsn
    with psycopg.connect(fresh_database) as connection:
        assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0


async def test_async_connections_see_the_same_database(aconnection: "psycopg.AsyncConnection[object]") -> None:
    """Both kinds lead to the emptied database."""
    cursor = await aconnection.execute("SELECT count(*) FROM pgtasks.tasks")
    assert await cursor.fetchone() == (0,)


def test_a_worker_process_runs_the_basic_app(dsn: str, runs: Connection) -> None:
    """It says that it is ready, does its work, and is gone after the block."""
    value(runs, "SELECT pgtasks.enqueue('record')")
    with WorkerProcess("tests.apps.basic:app", dsn, "--concurrency", "2") as worker:
        worker.wait_ready()
        wait_until(lambda: rows(runs, "SELECT 1 FROM pgtasks.history"), hint=worker.output)
        assert rows(runs, "SELECT attempt, pid FROM public.runs") == [(1, worker.pid)]
        worker.terminate()
        assert worker.wait() == 0


def test_a_worker_process_dies_with_its_test(dsn: str, tmp_path: Path) -> None:
    """Whatever the test does not get to, no process stays behind."""
    code = (
        "import sys; from tests.workers import WorkerProcess; "
        "print(WorkerProcess('tests.apps.basic:app', sys.argv[1]).wait_ready().pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, dsn],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tester:
        assert tester.stdout is not None
        pid = int(tester.stdout.readline())
        assert alive(pid)
        tester.kill()
    wait_until(lambda: not alive(pid))
