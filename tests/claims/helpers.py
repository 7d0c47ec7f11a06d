"""Statements by hand, plans, and waiting, for the tests of claims."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import sql

from pgtasks.engine.cursor import claim_order
from pgtasks.model import Claimed
from pgtasks.store import session, statements
from pgtasks.store.session import Statement
from pgtasks.store.statements import Lane
from tests.database import Connection

R = TypeVar("R")
ME = UUID(int=1)
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
    return sorted(session.fetch_all(connection, statement), key=claim_order)


@contextmanager
def prepared(connection: Connection, statement: Statement[Any], **settings: str) -> Iterator[sql.Composed]:
    """Prepare a statement with a generic plan under some settings; gives its EXECUTE."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    connection.prepare_threshold = None
    text = re.sub(r"%\((\w+)\)s", number, statement.sql).replace("%%", "%")
    for name, value in {"plan_cache_mode": "force_generic_plan", **settings}.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    connection.execute(f"PREPARE hot AS {text}".encode())
    try:
        values = sql.SQL(", ").join(sql.Literal(statement.params[name]) for name in names)
        yield sql.SQL("EXECUTE hot ({})").format(values) if names else sql.SQL("EXECUTE hot").format()
    finally:
        # psycopg may have done so itself as a transaction rolled back; it must not prepare on its own.
        connection.execute("DEALLOCATE ALL")
        for name in ("plan_cache_mode", *settings):
            connection.execute(sql.SQL("RESET {}").format(sql.Identifier(name)))


def explain(connection: Connection, statement: Statement[Any], **settings: str) -> list[dict[str, Any]]:
    """Give the nodes of a statement's generic plan, flat."""
    with prepared(connection, statement, **settings) as execute:
        ((plans,),) = connection.execute(sql.SQL("EXPLAIN (FORMAT JSON) {}").format(execute)).fetchall()
    return list(nodes(plans[0]["Plan"]))


def analyze(connection: Connection, statement: Statement[Any], **settings: str) -> list[dict[str, Any]]:
    """Run a statement without keeping what it did; give the nodes of its plan with their numbers, flat."""
    with prepared(connection, statement, **settings) as execute, connection.transaction(force_rollback=True):
        text = sql.SQL("EXPLAIN (FORMAT JSON, ANALYZE, BUFFERS, TIMING OFF) {}").format(execute)
        ((plans,),) = connection.execute(text).fetchall()
    return list(nodes(plans[0]["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Walk a plan."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


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
