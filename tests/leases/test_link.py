"""A connection that comes back: from a black hole, a cut, a wrong statement, within its deadline."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from pgtasks.errors import DatabaseError, DatabaseUnavailable
from pgtasks.store import statements
from pgtasks.store.link import Link
from pgtasks.store.session import Statement
from tests.database import Connection, rows, value
from tests.proxy import Proxy

DEADLINE_S = 0.5
SLEEP: Statement[int] = Statement("SELECT 1 FROM pg_catalog.pg_sleep(5)", {}, int)


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    """A proxy in front of the test's database."""
    with Proxy(dsn) as running:
        yield running


@pytest.fixture
async def link(proxy: Proxy) -> AsyncIterator[Link]:
    """A connected link through the proxy."""
    made = Link(proxy.dsn, "claim", worker="test", deadline_s=DEADLINE_S)
    await made.fetch_one(statements.clock(), 5.0)
    yield made
    await made.close()


async def test_a_black_hole_ends_at_the_deadline(proxy: Proxy, link: Link) -> None:
    """Neither TCP nor PostgreSQL notices anything; the deadline does, and the next statement works."""
    proxy.black_hole()
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="no answer within"):
        await link.fetch_one(statements.clock())
    with pytest.raises(DatabaseUnavailable):  # The new connection vanishes as well.
        await link.fetch_one(statements.clock())
    assert 2 * DEADLINE_S <= time.monotonic() - began < 2 * DEADLINE_S + 1.0
    proxy.heal()
    assert await link.fetch_one(statements.clock(), 5.0) is not None


async def test_a_statement_that_takes_too_long_is_given_up(link: Link, connection: Connection) -> None:
    """The connection that was given up is gone on the server too, as soon as it looks."""
    with pytest.raises(DatabaseUnavailable):
        await link.fetch_one(SLEEP)
    assert not link.connected
    assert await link.fetch_one(statements.clock(), 5.0) is not None


async def test_waiting_for_the_turn_does_not_cut_the_statement_before(link: Link) -> None:
    """A statement behind a slow one gives up waiting; the slow one goes on and succeeds."""
    nap: Statement[int] = Statement("SELECT 1 FROM pg_catalog.pg_sleep(0.4)", {}, int)
    slow = asyncio.create_task(link.fetch_all(nap, 5.0))
    await asyncio.sleep(0)
    with pytest.raises(DatabaseUnavailable, match="busy"):
        await link.fetch_one(statements.clock(), 0.1)
    assert await slow == [1]


async def test_cancelling_a_statement_leaves_the_link_usable(link: Link) -> None:
    """A part that is stopped in mid-statement leaves nothing half-read behind."""
    work = asyncio.create_task(link.fetch_all(SLEEP, 5.0))
    await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await link.fetch_one(statements.clock(), 5.0) is not None


async def test_only_errors_of_a_statement_keep_the_connection(link: Link, connection: Connection) -> None:
    """Bad data keeps it; a read-only session, which a failover leaves behind, does not."""
    pid: Statement[int] = Statement("SELECT pg_catalog.pg_backend_pid()", {}, int)
    before = await link.fetch_all(pid, 5.0)
    with pytest.raises(DatabaseError) as refused:
        await link.fetch_one(Statement("SELECT 'x'::int", {}, int), 5.0)
    assert not isinstance(refused.value, DatabaseUnavailable)
    assert await link.fetch_all(pid, 5.0) == before
    await link.fetch_all(Statement("SET default_transaction_read_only = on"), 5.0)
    with pytest.raises(DatabaseUnavailable):
        await link.fetch_all(Statement("CREATE TABLE public.refused ()"), 5.0)
    assert await link.fetch_all(pid, 5.0) != before


async def test_a_terminated_connection_is_opened_again(link: Link, connection: Connection) -> None:
    """The statement that meets the broken connection fails as unavailable, the next one works."""
    rows(
        connection,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'pgtasks/claim/test'",
    )
    with pytest.raises(DatabaseUnavailable):
        await link.fetch_one(statements.clock(), 5.0)
    assert await link.fetch_one(statements.clock(), 5.0) is not None
    assert value(connection, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgtasks/claim/test'") == 1
