"""A connection string with several hosts leads to the one that takes writes, past those that are gone or silent."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgtasks import App, DatabaseUnavailable, schema
from pgtasks.store import statements
from pgtasks.store.identity import Identity, strangeness
from pgtasks.store.link import Link
from tests.access import ROLES
from tests.cli.conftest import Run
from tests.database import Connection, rows, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker


def before(dsn: str, host: str, port: int) -> str:
    """Put a host before that of an address."""
    given = psycopg.conninfo.conninfo_to_dict(dsn)
    both = {"host": f"{host},{given['host']}", "port": f"{port},{given['port']}"}
    return psycopg.conninfo.make_conninfo("", **{**given, **both, "target_session_attrs": "read-write"})


@contextmanager
def silent() -> Iterator[int]:
    """Give a port that accepts and says nothing, as a host does whose packets are dropped after the first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def nobody() -> Iterator[int]:
    """Give a port on which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_everything_works_behind_a_dead_host(
    dsn: str, connection: Connection, offline: Run, start_worker: StartWorker
) -> None:
    """D-01: a worker, an enqueue, a command and a migration, all with the dead one first."""
    with nobody() as port:
        address = before(dsn, "127.0.0.1", port)
        assert schema.migrate(address).applied == ()
        worker = start_worker(address=address)
        worker.wait_output("worker started")
        app = App(address)
        added = app.enqueue("tick", {"seconds": 0})
        app.close()
        wait_until(lambda: steps.status(connection, added.id) == "completed", hint=worker.output)
        ran = offline("tasks", "show", str(added.id), "--dsn", address)
        assert ran.code == 0, ran.err
    assert "unavailable" not in worker.output()


async def test_a_short_deadline_does_not_end_connecting(dsn: str) -> None:
    """With a silent host before the right one, connecting takes longer than a heartbeat may; it goes on meanwhile."""
    with silent() as port:
        address = psycopg.conninfo.make_conninfo(before(dsn, "127.0.0.1", port), connect_timeout="2")
        link = Link(address, "heartbeat", deadline_s=0.5)
        given_up, until = 0, time.monotonic() + 20
        while time.monotonic() < until:
            try:
                assert await link.fetch_one(statements.clock())
                break
            except DatabaseUnavailable:
                given_up += 1
        assert given_up
        assert link.connected
        assert await link.fetch_one(statements.clock())
        await link.close()


async def test_a_try_to_connect_ends_with_its_link(dsn: str) -> None:
    """Nothing of it is left in the loop."""
    with silent() as port:
        link = Link(before(dsn, "127.0.0.1", port), "claim", deadline_s=0.1)
        with pytest.raises(DatabaseUnavailable):
            await link.fetch_one(statements.clock())
        began = time.monotonic()
        await link.close()
        assert time.monotonic() - began < 2.0
        assert not link.connected


def test_only_a_server_that_takes_writes_will_do(dsn: str, connection: Connection) -> None:
    """All hosts read-only: an error that says so, and no connection to a standby."""
    with nobody() as port:
        app = App(before(dsn, "127.0.0.1", port))
        rows(connection, f"ALTER ROLE {ROLES['producer']} SET default_transaction_read_only = on")
        try:
            with pytest.raises(DatabaseUnavailable, match="read-only"):
                app.enqueue("work")
        finally:
            rows(connection, f"ALTER ROLE {ROLES['producer']} RESET default_transaction_read_only")
        assert app.enqueue("work").created
        app.close()


@pytest.mark.parametrize(
    ("last", "now", "said"),
    [
        (Identity("1", 1), Identity("1", 1), None),
        (Identity("1", 1), Identity("1", 2), None),
        (Identity("1", 2), Identity("1", 1), "an older timeline than before: 1 after 2"),
        (Identity("1", 1), Identity("2", 1), "another cluster than before: system identifier 2 after 1"),
        (Identity("1", 2), Identity(None, None), None),
        (Identity(None, 2), Identity("1", None), None),
    ],
)
def test_a_server_is_compared_with_the_one_before(last: Identity, now: Identity, said: str | None) -> None:
    """P6: what a role may not see is no reason to warn."""
    assert strangeness(last, now) == said


async def test_a_role_that_may_not_ask_works_without(fresh_database: str) -> None:
    """P6: the functions can be taken away from everybody; that costs the warning and nothing else."""
    seen: list[Identity] = []
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        rows(admin, "CREATE ROLE blind LOGIN")
        rows(admin, "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC")
        address = psycopg.conninfo.make_conninfo(fresh_database, user="blind")
        link = Link(address, "heartbeat", on_server=seen.append)
        assert await link.fetch_one(statements.clock())
        await link.close()
        rows(admin, "DROP ROLE blind")
    assert seen == [Identity(None, None)]
