"""Statements by hand, plans, and waiting, for the tests of claims."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from bench import plans
from bench.plans import nodes
from pgtasks.engine.cursor import claim_order
from pgtasks.model import Claimed, tasks_of
from pgtasks.store import session, statements
from pgtasks.store.session import Statement
from pgtasks.store.statements import Lane
from tests.database import Connection

R = TypeVar("R")
ME = plans.ME
BEGINNING = Lane(0, datetime(1970, 1, 1, tzinfo=UTC), 0)


def claim(
    connection: Connection,
    limit: int,
    *,
    queue: str = "default",
    lanes: Sequence[Lane] = (BEGINNING,),
    names: Sequence[str] = ("t",),
) -> list[Claimed]:
    """Claim from cursors, as a worker does."""
    statement = statements.claim(queue, lanes, limit=limit, names=list(names), worker_id=ME, lease_s=30)
    return sorted(session.fetch_all(connection, statement), key=claim_order)


def rescan(
    connection: Connection, limit: int, *, queue: str = "default", names: Sequence[str] = ("t",)
) -> list[Claimed]:
    """Claim from the head, as a worker does."""
    statement = statements.rescan(queue, limit=limit, names=list(names), worker_id=ME, lease_s=30)
    return sorted(tasks_of(session.fetch_all(connection, statement)), key=claim_order)


def explain(connection: Connection, statement: Statement[Any], **settings: str) -> list[dict[str, Any]]:
    """Give the nodes of a statement's generic plan, flat."""
    return list(nodes(plans.explain(connection, statement, **settings)))


def analyze(connection: Connection, statement: Statement[Any], **settings: str) -> list[dict[str, Any]]:
    """Run a statement without keeping what it did; give the nodes of its plan with their numbers, flat."""
    with plans.prepared(connection, statement, **settings) as execute, connection.transaction(force_rollback=True):
        text = sql.SQL("EXPLAIN (FORMAT JSON, ANALYZE, BUFFERS, TIMING OFF) {}").format(execute)
        ((found,),) = connection.execute(text).fetchall()
    return list(nodes(found[0]["Plan"]))


async def until(
    condition: Callable[[], object], timeout_s: float = 10.0, *, hint: str = "it did not come true"
) -> None:
    """Poll until a condition holds; fail with the hint when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, hint
        await asyncio.sleep(0.005)


async def avalue(connection: psycopg.AsyncConnection[Any], statement: str, *params: Any) -> Any:
    """Run a statement and return the one value it gives."""
    cursor = await connection.execute(statement.encode(), params or None)
    row = await cursor.fetchone()
    assert row is not None
    return row[0]


async def gather_all(*work: Awaitable[Any]) -> None:
    """Wait for all, and fail if one of them does."""
    await asyncio.gather(*work)
