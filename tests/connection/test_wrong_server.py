"""A server that does not serve (read-only, ending) is left with all connections, and found again."""

import asyncio
import os
import signal
import time
from pathlib import Path

import psycopg
import pytest

from pgtasks import App, DatabaseUnavailable
from pgtasks.store.link import Link
from pgtasks.store.listening import Listening
from pgtasks.store.route import Route
from pgtasks.store.session import Statement, connect
from tests.access import ROLES
from tests.claims.helpers import until
from tests.database import Connection, rows, start_server, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.leases.roles import worker_role
from tests.trace import Trace

PID: Statement[int | None] = Statement("SELECT pg_catalog.pg_backend_pid()", {}, int)
WRITE: Statement[object] = Statement("CREATE TABLE public.refused ()")
END_ALL = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'moved_worker'"
BACK_S = 5.0


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_worker_outlives_a_read_only_server(connection: Connection, start_worker: StartWorker, trace: Trace) -> None:
    """D-01: no task fails, a handler that ended meanwhile is not run again, and all goes on within five seconds."""
    with worker_role(connection, "moved_worker", {}) as address:
        worker = start_worker(address=address, lease_s=4.0)
        worker.wait_output("worker started")
        before = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 1}')""")
        wait_until(lambda: trace.marks("start"))
        rows(connection, "ALTER ROLE moved_worker SET default_transaction_read_only = on")
        rows(connection, END_ALL)
        wait_until(lambda: trace.marks("end"), hint=worker.output)
        waiting = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 0}')""")
        worker.wait_output("read-only transaction")
        assert steps.status(connection, before) == "running"
        rows(connection, "ALTER ROLE moved_worker RESET default_transaction_read_only")
        since = time.monotonic()
        wait_until(
            lambda: {steps.status(connection, task_id) for task_id in (before, waiting)} == {"completed"},
            hint=worker.output,
        )
        assert time.monotonic() - since < BACK_S + 2
        worker.kill()
    assert rows(connection, "SELECT * FROM pgtasks.attempts") == []
    assert len(trace.marks("start", task_id=before)) == 1
    assert "connect to the primary" in worker.output()


def test_a_server_that_shuts_down_is_no_matter_of_the_password() -> None:
    """It has not looked at it: trying again is all there is to do, and is advised."""
    with start_server() as server:
        dsn = server.dsn_for("postgres")
        with psycopg.connect(dsn, autocommit=True) as connection:
            folder = value(connection, "SHOW data_directory")
            postmaster = int((Path(str(folder)) / "postmaster.pid").read_text().splitlines()[0])
            # It waits for this connection and takes no other.
            os.kill(postmaster, signal.SIGTERM)
            said = list[str]()

            def is_refused() -> bool:
                try:
                    connect(dsn, "cli").close()
                except DatabaseUnavailable as error:
                    said.append(str(error))
                return bool(said)

            wait_until(is_refused, 10)
    assert "shutting down" in said[0]
    assert said[0].endswith("— try again")


async def test_what_one_connection_meets_the_others_act_upon(dsn: str, connection: Connection) -> None:
    """25006 on the part that writes: the listening session, to which nothing happens, is opened again too."""
    route, heard, lost = Route(), [], asyncio.Event()
    listening = Listening(dsn, ("pgtasks",), lambda _, said: heard.append(said), lost.set, worker="w", route=route)
    claim, finish = (Link(dsn, part, route=route) for part in ("claim", "finish"))
    await listening.open()
    before = [await link.fetch_one(PID) for link in (claim, finish)]
    await finish.fetch_all(Statement("SET default_transaction_read_only = on"))
    with pytest.raises(DatabaseUnavailable, match="connect to the primary"):
        await finish.fetch_all(WRITE)
    await until(lost.is_set)
    assert route.generation == 1
    after = [await link.fetch_one(PID) for link in (claim, finish)]
    assert set(before).isdisjoint(after)
    assert await claim.fetch_one(PID) == after[0], "it is opened again once"
    await listening.open()
    connection.execute("NOTIFY pgtasks, 'x'")
    await until(lambda: heard == ["x"])
    for one in (claim, finish, listening):
        await one.close()


async def test_connections_that_break_together_do_not_chase_each_other(dsn: str, connection: Connection) -> None:
    """All are terminated: each fails once, and the second statement of each works."""
    route = Route()
    links = [Link(dsn, "claim", worker=str(number), route=route) for number in range(5)]
    for link in links:
        await link.fetch_one(PID)
    rows(
        connection,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/claim/%'",
    )
    results = await asyncio.gather(*(link.fetch_one(PID) for link in links), return_exceptions=True)
    assert all(isinstance(one, DatabaseUnavailable) for one in results)
    pids = [await link.fetch_one(PID) for link in links]
    assert [await link.fetch_one(PID) for link in links] == pids
    assert route.generation == 1
    for link in links:
        await link.close()


async def test_an_error_of_a_statement_leaves_the_route_alone(dsn: str) -> None:
    """Bad data, a lock, a time limit: no reason to think ill of the server."""
    route = Route()
    one, other = Link(dsn, "claim", route=route), Link(dsn, "finish", route=route)
    pid = await other.fetch_one(PID)
    for wrong in ("SELECT 1/0", "SELECT 'x'::int", "SELECT pg_cancel_backend(pg_backend_pid())"):
        with pytest.raises(Exception, match=r"division|invalid|cancel"):
            await one.fetch_all(Statement(wrong))
    assert route.generation == 0
    assert await other.fetch_one(PID) == pid
    await one.close()
    await other.close()


def test_an_enqueue_that_meets_it_leaves_no_connection_to_it_behind(dsn: str, connection: Connection) -> None:
    """Two connections lie ready; the first that is refused takes the other with it."""
    app = App(dsn)
    pools = app._client._pools  # noqa: SLF001 - nothing public lends them out
    rows(connection, f"ALTER ROLE {ROLES['producer']} SET default_transaction_read_only = on")
    try:
        with pools.connection(), pools.connection():
            pass
    finally:
        rows(connection, f"ALTER ROLE {ROLES['producer']} RESET default_transaction_read_only")
    with pytest.raises(DatabaseUnavailable, match="connect to the primary"):
        app.enqueue("work")
    assert app.enqueue("work").created
    app.close()
