"""P-03: what one claim brings is bounded in bytes, and a claim that takes too long is asked for less."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from pgtasks.engine.batches import BYTES_TARGET, LIMIT_FIRST, LIMIT_MAX, QUICK_S, BatchLimit
from pgtasks.errors import DatabaseUnavailable
from pgtasks.model import Claimed, tasks_of
from pgtasks.store.link import Link
from pgtasks.store.session import Statement
from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.database import Connection, value

LARGE = 1_900_000


def _reply(count: int, size: int) -> list[Claimed]:
    return [Claimed(n, 1, "t", "x" * size, 1, None, None, 0, datetime.now(UTC), None) for n in range(count)]


def test_small_payloads_soon_get_the_largest_claims() -> None:
    """Five replies after the start; and from then on nothing changes."""
    limit, seen = BatchLimit(), []
    for _ in range(6):
        seen.append(limit.tasks)
        limit.answered(_reply(limit.tasks, 100), 0.001)
    assert seen == [32, 64, 128, 256, 512, LIMIT_MAX]


def test_one_reply_of_large_ones_is_enough_to_ask_for_few() -> None:
    """And it comes back gradually when they are small again; one that is larger than all still comes alone."""
    limit = BatchLimit()
    limit.answered(_reply(5, LARGE), 0.1)
    assert limit.tasks == BYTES_TARGET // LARGE
    limit.answered(_reply(4, 100), 0.1)
    assert limit.tasks == BYTES_TARGET // (LARGE // 2)
    limit.answered(_reply(1, 2 * BYTES_TARGET), 0.1)
    assert limit.tasks == 1


def test_a_timeout_halves_and_quick_replies_raise_it_slowly() -> None:
    """Down to one; slow replies do not raise it."""
    limit = BatchLimit()
    for _ in range(5):
        limit.answered(_reply(10, 100), 0.001)
    assert limit.tasks == LIMIT_MAX
    limit.timed_out(LIMIT_MAX)
    assert limit.tasks == LIMIT_MAX // 2
    limit.timed_out(40)
    assert limit.tasks == 20
    limit.answered(_reply(20, 100), QUICK_S)
    assert limit.tasks == 20
    limit.answered(_reply(20, 100), QUICK_S / 2)
    assert limit.tasks == 22
    for _ in range(10):
        limit.timed_out(limit.tasks)
    assert limit.tasks == 1
    for _ in range(60):
        limit.answered(_reply(1, 100), 0.001)
    assert limit.tasks == LIMIT_MAX


def _watch(link: Link, monkeypatch: pytest.MonkeyPatch, seen: Callable[[int, list[Any]], None]) -> None:
    """Call back with the limit and the reply of each claim that this link sends; suspects are another matter."""
    real = link.fetch_all

    async def fetch_all(statement: Statement[Any], *rest: Any) -> list[Any]:
        rows = await real(statement, *rest)
        if "INSERT INTO pgtasks.leases" in statement.sql and "losses > 0" not in statement.sql:
            tasks = tasks_of(rows) if "RECURSIVE" in statement.sql else rows
            seen(int(statement.params["limit"]), tasks)
        return rows

    monkeypatch.setattr(link, "fetch_all", fetch_all)


async def test_a_worker_takes_large_payloads_in_small_bites(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 tasks of 1.9 MB and a hundred slots: from the second claim on a reply keeps within the target."""
    noise = random.Random(7)
    for _ in range(40):
        text = json.dumps({"x": noise.randbytes(LARGE // 2).hex()})
        connection.execute("INSERT INTO pgtasks.tasks (name, payload) VALUES ('t', %s)", (text,))
    sizes: list[int] = []

    def seen(_limit: int, rows: list[Any]) -> None:
        if rows:
            sizes.append(sum(len(row.payload) for row in rows))

    rig = Rig(dsn, concurrency=100)
    _watch(rig.link, monkeypatch, seen)
    async with rig:
        await rig.ran(40, 60)
        await until(lambda: value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0, 30)
    assert len(sizes) > 2
    assert max(sizes[1:]) <= BYTES_TARGET
    assert sizes[0] <= LIMIT_FIRST * (LARGE + 20)


async def test_a_claim_that_runs_into_the_time_limit_is_asked_for_less(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it fits; no attempt is charged for those in vain, and all tasks run."""
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, 60)")
    asked: list[int] = []
    rig = Rig(dsn, concurrency=100)

    def seen(limit: int, rows: list[Any]) -> None:
        asked.append(limit)
        if len(rows) > 10:
            raise DatabaseUnavailable("canceling statement due to statement timeout", sqlstate="57014")

    _watch(rig.link, monkeypatch, seen)
    async with rig:
        await rig.ran(60, 30)
        await until(lambda: value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0, 30)
    assert asked[:4] == [LIMIT_FIRST, LIMIT_FIRST // 2, LIMIT_FIRST // 4, LIMIT_FIRST // 4 + 1]
    assert value(connection, "SELECT max(attempt) FROM pgtasks.history") == 1
