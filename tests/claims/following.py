"""Claims that follow others, by hand, and what they read."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pgtasks.engine.cursor import claim_order
from pgtasks.model import Claimed
from pgtasks.store import session, statements
from pgtasks.store.statements import Lane
from tests.claims.helpers import BEGINNING, analyze
from tests.database import Connection, rows

LIMIT = 10
QUEUED = 100
# As the lease after which to follow others: there is none.
NOBODY = 2**63 - 1


def add(
    connection: Connection, count: int = QUEUED, *, name: str = "t", queue: str = "default", priority: int = 0
) -> None:
    """Enqueue tasks."""
    rows(
        connection,
        "INSERT INTO pgtasks.tasks (name, queue, priority) SELECT %s, %s, %s FROM generate_series(1, %s) RETURNING id",
        name,
        queue,
        priority,
        count,
    )


def claim(
    connection: Connection,
    worker: UUID,
    *,
    after_lease: int | None = None,
    lanes: Sequence[Lane] = (BEGINNING,),
    queue: str = "default",
    names: Sequence[str] = ("t",),
) -> list[Claimed]:
    """Claim from cursors, or from behind what others claimed after a lease; gives the tasks in claim order."""
    statement = statements.claim(queue, lanes, limit=LIMIT, names=list(names), worker_id=worker, lease_s=30)
    if after_lease is not None:
        statement = statements.follow(statement, after_lease)
    return sorted(session.fetch_all(connection, statement), key=claim_order)


def _scan(connection: Connection, statement: session.Statement[Claimed]) -> dict[str, Any]:
    """Run a claim without keeping what it did; give the node of its plan that reads the queue."""
    (scan,) = [
        node
        for node in analyze(connection, statement)
        if node.get("Index Name") == "tasks_claim_order" and node["Actual Loops"]
    ]
    return scan


def walked(connection: Connection, statement: session.Statement[Claimed]) -> int:
    """Say how many rows a claim reads."""
    scan = _scan(connection, statement)
    return int(scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0))


def tried(connection: Connection, statement: session.Statement[Claimed]) -> int:
    """Say how many of them it tries to lock."""
    return int(_scan(connection, statement)["Actual Rows"])
