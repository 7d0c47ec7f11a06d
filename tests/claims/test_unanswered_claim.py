"""A claim whose reply was lost: its tasks are given back at once, and no attempt is charged."""

import time
from typing import Any
from uuid import uuid4

import pytest

from pgtasks.engine import unanswered
from pgtasks.engine.unanswered import Unanswered
from pgtasks.errors import DatabaseUnavailable
from pgtasks.store import session, statements
from pgtasks.store.link import Link
from pgtasks.store.session import Statement
from tests.claims.helpers import ME, claim, rescan, until
from tests.claims.rig import Rig
from tests.database import Connection, rows, value

STATES = "SELECT state, attempt, lease_id IS NULL FROM pgtasks.tasks ORDER BY id"


def _fill(connection: Connection, count: int) -> None:
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, %s)", (count,))


class _Cut:
    """Runs one claim to its end, then throws its answer away, as a broken connection does."""

    def __init__(self, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real, self.lost = link.fetch_all, 0
        monkeypatch.setattr(link, "fetch_all", self._fetch_all)
        self._link = link

    async def _fetch_all(self, statement: Statement[Any], *rest: Any) -> list[Any]:
        answer = await self._real(statement, *rest)
        if answer and not self.lost and "INSERT INTO pgtasks.leases" in statement.sql:
            self.lost = len(answer)
            await self._link.close()
            raise DatabaseUnavailable("the connection broke before the answer came")
        return answer


async def test_the_worker_gives_them_back_and_runs_them(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All run in their first attempt, long before the lease would have expired."""
    _fill(connection, 30)
    async with Rig(dsn, concurrency=10) as rig:
        cut = _Cut(rig.link, monkeypatch)
        began = time.monotonic()
        await rig.ran(30)
        assert cut.lost
        assert time.monotonic() - began < 3.0
        await until(lambda: value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0)
    assert rows(connection, "SELECT DISTINCT attempt FROM pgtasks.history") == [(1,)]
    assert rows(connection, "SELECT * FROM pgtasks.attempts") == []
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0


async def test_only_unknown_leases_of_this_worker_are_touched(dsn: str, connection: Connection) -> None:
    """Not those it heard of before or since, and not another worker's."""
    _fill(connection, 4)
    link = Link(dsn, "claim")
    asker = Unanswered(link, ME)
    before = claim(connection, 1)
    asker.heard(before[0].lease_id)
    asker.lost()
    lost = claim(connection, 1)
    since = claim(connection, 1)
    asker.heard(since[0].lease_id)
    other = statements.rescan("default", limit=1, names=["t"], worker_id=uuid4(), lease_s=30)
    session.fetch_all(connection, other)
    assert await asker.give_back() == 1
    assert rows(connection, STATES) == [
        ("running", 1, False),
        ("queued", 0, True),
        ("running", 1, False),
        ("running", 1, False),
    ]
    assert [task.id for task in rescan(connection, 10)] == [lost[0].id]
    assert await asker.give_back() == 0
    await link.close()


async def test_a_claim_that_commits_after_the_first_look_is_found_by_a_later_one(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was still at it when the worker was back."""
    monkeypatch.setattr(unanswered, "LOOKS_S", (0.0, 0.05, 0.1, 60.0))
    _fill(connection, 1)
    link = Link(dsn, "claim")
    asker = Unanswered(link, ME)
    asker.lost()
    assert await asker.give_back() == 0
    assert claim(connection, 1)
    found = 0
    deadline = time.monotonic() + 5.0
    while not found and time.monotonic() < deadline:
        found = await asker.give_back()
    assert found == 1
    assert rows(connection, STATES) == [("queued", 0, True)]
    await link.close()


async def test_a_look_that_fails_is_done_again(dsn: str, connection: Connection) -> None:
    """The database was not back yet."""
    _fill(connection, 1)
    nowhere, link = Link("host=/nonexistent", "claim"), Link(dsn, "claim")
    asker = Unanswered(nowhere, ME)
    asker.lost()
    assert claim(connection, 1)
    with pytest.raises(DatabaseUnavailable):
        await asker.give_back()
    asker._link = link  # noqa: SLF001 - the server is back
    assert await asker.give_back() == 1
    await link.close()
