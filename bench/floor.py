"""The floor: how fast the same SQL goes with nothing around it.

One connection, one loop, no handlers, no timeouts, no heartbeats: claim 500 tasks, complete
them, again. The statements, the table, the indexes, the history and the connection's settings are
those of a worker, so the difference between the two is the worker's own work, and what it gains by
overlapping the two statements on two connections.
"""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

from bench import cpu
from bench.database import Bench
from pgtasks.outcome import Completed
from pgtasks.settings import QUEUE_DEFAULT
from pgtasks.store import session, statements

BATCH = 500
LEASE_S = 30.0


class FloorRun(NamedTuple):
    """What the loop did and used: tasks per second by history, CPU microseconds per task of both sides."""

    rate: float
    cpu_us_per_task: float | None


def run(bench: Bench, tasks: int) -> FloorRun:
    """Drain the queue, which holds this many tasks."""
    started_s = time.thread_time()
    with session.connect(bench.dsn, "claim", worker="floor") as connection:
        _drain(connection)
        server_s = cpu.cpu_s_of(connection.info.backend_pid)
    client_s = time.thread_time() - started_s
    return FloorRun(
        rate=tasks / bench.span(tasks).seconds,
        cpu_us_per_task=None if server_s is None else (client_s + server_s) / tasks * 1e6,
    )


def _drain(connection: session.SyncConnection) -> None:
    worker_id = uuid.uuid4()
    lane = statements.Lane(0, datetime(1970, 1, 1, tzinfo=UTC), 0)
    while rows := session.fetch_all(
        connection,
        statements.claim(QUEUE_DEFAULT, [lane], limit=BATCH, names=["noop"], worker_id=worker_id, lease_s=LEASE_S),
    ):
        lane = statements.Lane(0, *max((row.run_at, row.id) for row in rows))
        ended = sorted((row.id, row.lease_id) for row in rows)
        outcomes = [Completed()] * len(ended)
        session.fetch_all(connection, statements.complete(worker_id, ended, outcomes, [rows[0].lease_id]))
