"""A connection of a worker is given up with a statement that is waited for no more; the next use opens another."""

import asyncio
import time

import pytest

from pgtasks.errors import DatabaseUnavailable
from pgtasks.store import link
from pgtasks.store.link import Link
from pgtasks.store.session import QUERY_CANCELED, AsyncConnection, Statement, afetch_all
from tests.proxy import Proxy

LONG: Statement[object] = Statement("SELECT pg_sleep(30)")
SHORT: Statement[object] = Statement("SELECT pg_sleep(0.6)")
PID: Statement[int] = Statement("SELECT pg_backend_pid()", row=int)


async def test_past_the_deadline(dsn: str) -> None:
    """Also on a connection that is open already, whose statement runs without a task of its own."""
    link = Link(dsn, "claim", deadline_s=0.3)
    before = await link.fetch_one(PID)
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match=r"no answer within 0\.3 s") as raised:
        await link.fetch_all(LONG)
    assert time.monotonic() - began < 3
    assert raised.value.sqlstate == QUERY_CANCELED
    assert not link.connected
    assert await link.fetch_one(PID) != before
    await link.close()


async def test_when_the_answer_comes_as_the_time_is_over(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer counts; the connection, which was shut down meanwhile, is not left for the next statement to find."""
    opened = Link(dsn, "claim", deadline_s=0.2)
    before = await opened.fetch_one(PID)

    async def dawdling(connection: AsyncConnection, statement: Statement[int]) -> list[int]:
        rows = await afetch_all(connection, statement)
        await asyncio.sleep(0.4)  # the time is over in between
        return rows

    monkeypatch.setattr(link, "afetch_all", dawdling)
    assert await opened.fetch_one(PID) == before
    assert not opened.connected
    monkeypatch.undo()
    assert await opened.fetch_one(PID) != before
    await opened.close()


async def test_when_it_is_cancelled(dsn: str) -> None:
    """At once, without a word to the server that might not be answered."""
    link = Link(dsn, "claim")
    before = await link.fetch_one(PID)
    work = asyncio.create_task(link.fetch_all(LONG))
    await asyncio.sleep(0.1)
    work.cancel()
    done, _ = await asyncio.wait({work}, timeout=2.0)
    assert done
    assert work.cancelled()
    assert not link.connected
    assert await link.fetch_one(PID) != before
    await link.close()


async def test_when_it_is_cancelled_and_nothing_answers(proxy: Proxy) -> None:
    """A worker that stops has no ten seconds for a server that takes no cancellation."""
    link = Link(proxy.dsn, "claim")
    assert await link.fetch_one(PID)
    proxy.black_hole()
    work = asyncio.create_task(link.fetch_all(PID))
    await asyncio.sleep(0.1)
    work.cancel()
    done, _ = await asyncio.wait({work}, timeout=3.0)
    assert done
    assert not link.connected
    await link.close()


async def test_who_waits_for_its_turn_has_the_same_limit(dsn: str) -> None:
    """However many wait, each is served or told so; the connection is as good as before."""
    link = Link(dsn, "claim")
    before = await link.fetch_one(PID)
    first = asyncio.create_task(link.fetch_all(SHORT))
    await asyncio.sleep(0.05)
    impatient = asyncio.create_task(link.fetch_all(PID, 0.2))
    patient = asyncio.create_task(link.fetch_all(PID))
    with pytest.raises(DatabaseUnavailable, match=r"busy for 0\.2 s"):
        await impatient
    assert await patient == [before]
    await first
    await link.close()
