"""B-01: a transaction that holds back vacuum does not make claims walk over what is finished."""

from collections.abc import Sequence
from typing import Any

import psycopg

from pgtasks.engine.cursor import Cursor
from pgtasks.model import Claimed
from pgtasks.outcome import Completed
from pgtasks.store import session, statements
from pgtasks.store.statements import Lane
from tests.claims.helpers import BEGINNING, ME, analyze, claim
from tests.database import Connection, value

TASKS = 50_000
BATCH = 500


def _read(connection: Connection, lanes: Sequence[Lane]) -> int:
    """How many buffers of the claim order's scan a claim of 100 would touch from these lanes."""
    statement = statements.claim("default", lanes, limit=100, names=["t"], worker_id=ME, lease_s=30)
    plan: list[dict[str, Any]] = analyze(connection, statement)
    (scan,) = [node for node in plan if node.get("Index Name") == "tasks_claim_order"]
    return int(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"])


def _finish(connection: Connection, taken: list[Claimed]) -> None:
    ended = [(task.id, task.lease_id) for task in sorted(taken, key=lambda task: task.id)]
    session.fetch_all(connection, statements.complete(ME, ended, [Completed()] * len(ended), [taken[0].lease_id]))


def test_claims_from_the_cursor_stay_flat_while_a_snapshot_is_open(fresh_database: str) -> None:
    """50,000 tasks pass: the last claim reads as much as the first; from the head it would read many times that."""
    with (
        psycopg.connect(fresh_database) as reader,
        psycopg.connect(fresh_database, autocommit=True) as connection,
    ):
        connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, %s)", (TASKS + 200,))
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        value(reader, "SELECT count(*) FROM pgtasks.workers")
        cursor = Cursor()
        cursor.claimed(claim(connection, BATCH), full=True, ended=0.0)
        first = _read(connection, cursor.lanes())
        for _ in range(TASKS // BATCH - 1):
            taken = claim(connection, BATCH, lanes=cursor.lanes())
            cursor.claimed(taken, full=True, ended=0.0)
            _finish(connection, taken)
        connection.execute("VACUUM pgtasks.tasks")
        assert _read(connection, cursor.lanes()) <= 1.5 * first
        assert _read(connection, [BEGINNING]) > 20 * first
