"""N-03: a dead or lost listener costs latency, never tasks."""

import asyncio
import time
from collections.abc import Iterator

import psycopg
import pytest

from pgtasks.embedded import FAST_OPTIONS, PrivateServer
from tests.access import ROLES
from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.database import Connection, prepare, rows, value

INSERT = "INSERT INTO pgtasks.tasks (name) VALUES ('t') RETURNING id"
END = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name LIKE %s"


async def test_a_listener_whose_backend_is_ended_comes_back(dsn: str, connection: Connection) -> None:
    """Three times, from sleep; a task inserted at that moment is found, and the next one by the bell again."""
    async with Rig(dsn) as rig:
        for turn in range(3):
            await rig.asleep()
            assert value(connection, END, "pgtasks/listen/%") == 1
            value(connection, INSERT)
            await rig.ran(2 * turn + 1, timeout_s=1.5)
            await rig.asleep()
            value(connection, INSERT)
            await rig.ran(2 * turn + 2, timeout_s=1.0)


async def test_every_connection_lost_at_once(dsn: str, connection: Connection) -> None:
    """The claiming one too: the task is found when the worker is back."""
    async with Rig(dsn) as rig:
        await rig.asleep()
        assert value(connection, END, "pgtasks/%") >= 2
        value(connection, INSERT)
        await rig.ran(1, timeout_s=3.0)
        await rig.asleep()


async def test_an_idle_session_timeout_of_the_role_does_not_end_the_listener(dsn: str, connection: Connection) -> None:
    """A listener is idle by nature; its own setting wins, and it stays the same session."""
    connection.execute(f"ALTER ROLE {ROLES['worker']} SET idle_session_timeout = '200ms'".encode())
    try:
        async with Rig(dsn) as rig:
            await rig.asleep()
            before = rows(connection, "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/%'")
            await asyncio.sleep(0.6)
            after = rows(connection, "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/%'")
            assert after == before
            assert rig.bell.armed
    finally:
        connection.execute(f"ALTER ROLE {ROLES['worker']} RESET idle_session_timeout".encode())


@pytest.fixture
def own_server() -> Iterator[tuple[PrivateServer, str]]:
    """A server that may be restarted, and the address of its database."""
    with PrivateServer(options=FAST_OPTIONS) as private:
        yield private, prepare(private)


async def test_a_server_restart_between_insert_and_delivery(own_server: tuple[PrivateServer, str]) -> None:
    """The notification may be lost with the server; the task, which is on disk, runs when it is back."""
    private, dsn = own_server
    async with Rig(dsn) as rig:
        await rig.asleep()
        # The worker's loop stands still until the server is back.
        with psycopg.connect(dsn, autocommit=True) as producer:
            value(producer, INSERT)
        private.restart()
        await rig.ran(1, timeout_s=6.0)
        await rig.asleep()


async def test_a_task_due_while_the_listener_is_gone_starts_on_time(dsn: str, connection: Connection) -> None:
    """Scheduled tasks do not depend on hearing."""
    async with Rig(dsn) as rig:
        await rig.asleep()
        due = time.monotonic() + 0.6
        task_id = value(connection, "SELECT pgtasks.enqueue('t', delay => '0.6 s')")
        value(connection, END, "pgtasks/listen/%")
        await until(lambda: task_id in rig.started)
        assert -0.05 < rig.started[task_id] - due < 1.0
