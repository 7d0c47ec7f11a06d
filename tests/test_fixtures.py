"""The fixtures themselves: a dirty database is clean for the next test."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from pgtasks.store import conninfo
from pgtasks.store.session import connect
from tests import access
from tests.cli.conftest import Run, offline, pgtasks
from tests.database import FIRST_ID, ROOT, Connection, Server, rows, value, wait_until
from tests.embedded.processes import alive
from tests.workers import WorkerProcess, environment

__all__ = ["offline", "pgtasks"]
WHO = (
    "SELECT DISTINCT usename::text FROM pg_stat_activity"
    " WHERE application_name LIKE 'pgtasks/%' AND datname = current_database()"
)


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
        assert rows(runs, WHO) == [(access.ROLES["worker"],)]
        worker.terminate()
        assert worker.wait() == 0


def test_no_role_of_pgtasks_has_any_privilege_of_the_server(connection: Connection) -> None:
    """They log in, and have what `pgtasks grant` gives them; the owner has its database."""
    query = "SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%s) AND NOT (rolsuper OR rolcreaterole"
    found = rows(connection, f"{query} OR rolcreatedb OR rolreplication OR rolbypassrls)", [*access.ROLES.values()])
    assert {name for (name,) in found} == set(access.ROLES.values())


def test_each_part_in_this_process_connects_as_its_role(dsn: str, connection: Connection, pgtasks: Run) -> None:
    """What only takes the fixture's address is no superuser either."""
    parts: dict[conninfo.Part, access.Role] = {"claim": "worker", "metrics": "reader", "client": "producer"}
    for part, role in parts.items():
        with closing(connect(dsn, part)):
            assert rows(connection, WHO) == [(access.ROLES[role],)]
        wait_until(lambda: not rows(connection, WHO))
    found = {one["check"]: one for one in pgtasks("doctor", "--json").json["findings"]}
    assert found["privileges"]["may_enqueue"] is False


def test_a_superusers_session_is_found(dsn: str, server: Server) -> None:
    """However it came about: the server's log has every session that calls itself pgtasks."""
    (watch,) = access.WATCHES
    psycopg.connect(access.as_role(dsn, "worker"), application_name="pgtasks/claim/x").close()
    psycopg.connect(dsn, application_name="a test").close()
    assert watch.found() == set()
    with psycopg.connect(dsn, application_name="pgtasks/claim/x") as wrong:
        assert watch.found() == {f"{wrong.info.dbname} pgtasks/claim/x"}
    with pytest.raises(AssertionError, match="no program of pgtasks runs as superuser"):
        environment(server.dsn_for("postgres"), "worker")


def test_a_worker_process_dies_with_its_test(dsn: str, tmp_path: Path) -> None:
    """Whatever the test does not get to, no process stays behind."""
    code = (
        "import sys; from tests.workers import WorkerProcess, environment; "
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
