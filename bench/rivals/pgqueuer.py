"""pgqueuer: the fastest of the Python queues on PostgreSQL that we know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals.python import PythonRival


class Pgqueuer(PythonRival):
    """Claims batches with SKIP LOCKED, and acknowledges in batches of the same size."""

    name = "pgqueuer"
    title = "pgqueuer"
    packages = ("pgqueuer[asyncpg,psycopg]==1.6.0", "uvloop==0.23.0")
    settings = (
        "Batches of 500, one queue manager on one asyncpg connection as its guide says, uvloop as its own benchmark, "
        "no limit on concurrency (the default), durability 'durable' (the default), `pgq autovac` as its checklist "
        "says; its heartbeats and its periodic aggregation of the log are as it ships them."
    )
    sources = (
        "https://github.com/janbjorge/pgqueuer/blob/main/docs/guides/performance-tuning.md",
        "https://github.com/janbjorge/pgqueuer/blob/main/docs/development/benchmark.md: asyncpg over psycopg",
        "https://github.com/janbjorge/pgqueuer/blob/main/tools/benchmark.py: uvloop",
    )
    keeps = "The row is deleted; a row in pgqueuer_log for each change of state is kept (durable, the default)."
    tables = ("pgqueuer", "pgqueuer_log", "pgqueuer_statistics")
    fill_sql = """
        WITH jobs AS (
            INSERT INTO pgqueuer (priority, entrypoint, status)
            SELECT 0, 'noop', 'queued' FROM generate_series(1, %s)
            RETURNING id, entrypoint, priority
        )
        INSERT INTO pgqueuer_log (job_id, status, entrypoint, priority)
        SELECT id, 'queued', entrypoint, priority FROM jobs
    """
    unfinished_sql = "SELECT EXISTS (SELECT FROM pgqueuer)"
    finished_sql = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
    waiting_sql = "SELECT count(*) FROM pgqueuer WHERE status = 'queued'"
    # Tried on a busy machine, by CPU of worker and server together, against this: two managers side by side 1.15,
    # three 1.25, five with batches of 100 (as its benchmark does with 10) 1.5, batches of 1,000 1.05, of 250 1.1,
    # a pool of asyncpg connections 1.25, psycopg 1.65. With cores to spare, two managers were as fast as one.
    options: ClassVar[Mapping[str, Any]] = {"batch_size": 500, "driver": "asyncpg", "managers": 1}
