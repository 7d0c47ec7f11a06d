"""The statements that workers run all the time, and how PostgreSQL would run them: the shape of their plans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg import sql

from bench.database import Connection
from pgtasks.outcome import Cancelled, Completed, Dead, Failure, RetryIn
from pgtasks.store import looking, reading, statements
from pgtasks.store.session import Statement
from pgtasks.store.statements import Lane

ME = UUID(int=1)
# What a worker's connections set; behind a pooler they set nothing.
ENGINE = {"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}
NOW = datetime.now(UTC)
LANES = [Lane(1, NOW, 0), Lane(0, NOW, 0)]
ENDED = [(3_000_000_001, 1), (3_000_000_002, 1)]
_CLAIM = statements.claim("default", LANES, limit=100, names=["t"], worker_id=ME, lease_s=30)
FAILURE = Failure("ValueError", "no", "Traceback")


def hot() -> dict[str, tuple[Statement[Any], str]]:
    """Give each hot statement with the index that it must use on tasks."""
    order, key = "tasks_claim_order", "tasks_pkey"
    return {
        "claim": (_CLAIM, order),
        "follow": (statements.follow(_CLAIM, 0), order),
        "rescan": (statements.rescan("default", limit=100, names=["t"], worker_id=ME, lease_s=30), order),
        "suspects": (
            statements.claim_suspects("default", limit=4, names=["t"], worker_id=ME, lease_s=30),
            "tasks_suspects",
        ),
        "counted suspects": (reading.suspects(scan=1000, limit=20), "tasks_suspects"),
        "due": (statements.due_in(["default", "other"], ["t"]), order),
        "left": (looking.left(["default", "other"], ["t"]), order),
        "complete": (statements.complete(ME, ENDED, [Completed(None, None)] * 2, [1]), key),
        "retry": (statements.retry(ME, ENDED, [RetryIn(1.0, FAILURE)] * 2, [1]), key),
        "bury": (statements.bury(ME, ENDED, [Dead("exhausted", FAILURE)] * 2, [1]), key),
        "cancelled": (statements.cancelled(ME, ENDED, [Cancelled("no")] * 2, [1]), key),
        "release": (statements.release(ME, ENDED, [0.0] * 2, [1]), key),
        "sweep": (statements.sweep(datetime(2100, 1, 1, tzinfo=UTC), limit=50), key),
        "unanswered": (statements.unanswered(ME, after=0, known=[2]), key),
    }


def seed(connection: Connection, tasks: int) -> None:
    """Put many tasks in two priorities and some expired leases into empty tables; no statistics."""
    connection.execute("ALTER TABLE pgtasks.tasks SET (autovacuum_enabled = off)")
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, priority, run_at) SELECT 't', n %% 2, clock_timestamp() + n * interval '1 ms'"
        " - interval '50 s' FROM generate_series(1, %s) n",
        (tasks,),
    )
    connection.execute(
        "UPDATE pgtasks.tasks SET losses = 1 WHERE id %% %s = 0 AND run_at <= clock_timestamp()",
        (max(tasks // 400, 1),),
    )
    connection.execute(
        "INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids)"
        " SELECT %s, clock_timestamp() - interval '1 h', ARRAY[3000000000 + n, 3000000001 + n]"
        " FROM generate_series(1, 100) n",
        (ME,),
    )


@contextmanager
def prepared(connection: Connection, statement: Statement[Any], **settings: str) -> Iterator[sql.Composed]:
    """Prepare a statement with a generic plan under some settings; gives its EXECUTE."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    threshold, connection.prepare_threshold = connection.prepare_threshold, None
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
        connection.prepare_threshold = threshold


def explain(connection: Connection, statement: Statement[Any], **settings: str) -> dict[str, Any]:
    """Give a statement's generic plan."""
    with prepared(connection, statement, **settings) as execute:
        ((plans,),) = connection.execute(sql.SQL("EXPLAIN (FORMAT JSON) {}").format(execute)).fetchall()
    top: dict[str, Any] = plans[0]["Plan"]
    return top


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Walk a plan."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def shape(plan: dict[str, Any], depth: int = 0) -> list[str]:
    """Give what a plan does, without what it costs: one line a node, indented, with its index and its table."""
    index, table = plan.get("Index Name"), plan.get("Relation Name")
    line = f"{'  ' * depth}{plan['Node Type']}{f' by {index}' if index else ''}{f' of {table}' if table else ''}"
    return [line, *(each for child in plan.get("Plans", []) for each in shape(child, depth + 1))]


def shapes(connection: Connection) -> dict[str, list[str]]:
    """Give the shape of each hot statement's plan, with the settings of a worker's connections."""
    return {name: shape(explain(connection, statement, **ENGINE)) for name, (statement, _) in hot().items()}
