"""The floor: how fast the same SQL goes with nothing around it.

One connection, one loop, no handlers, no timeouts, no heartbeats: claim 500 tasks, complete
them, again. The statements, the table, the indexes, the history and the connection's settings are
those of a worker, so the difference between the two is the worker's own work, and what it gains by
overlapping the two statements on two connections.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from bench.database import Bench
from pgtasks.outcome import Completed
from pgtasks.settings import QUEUE_DEFAULT
from pgtasks.store import session, statements

BATCH = 500
LEASE_S = 30.0


def run(bench: Bench, tasks: int) -> float:
    """Drain the queue, which holds this many tasks; gives tasks per second, by history as for a worker."""
    worker_id = uuid.uuid4()
    lane = statements.Lane(0, datetime(1970, 1, 1, tzinfo=UTC), 0)
    with session.connect(bench.dsn, "claim", worker="floor") as connection:
        while rows := session.fetch_all(
            connection,
            statements.claim(QUEUE_DEFAULT, [lane], limit=BATCH, names=["noop"], worker_id=worker_id, lease_s=LEASE_S),
        ):
            lane = statements.Lane(0, *max((row.run_at, row.id) for row in rows))
            ended = sorted((row.id, row.lease_id) for row in rows)
            outcomes = [Completed()] * len(ended)
            session.fetch_all(connection, statements.complete(worker_id, ended, outcomes, [rows[0].lease_id]))
    return tasks / bench.span(tasks).seconds
