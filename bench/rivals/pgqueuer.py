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
        "Batches of 500, two queue managers in the process (its own benchmark runs five with batches of 10), each on "
        "one asyncpg connection as its guide says, uvloop as its benchmark, no limit on concurrency, durability "
        "'durable' (the default), `pgq autovac` as its checklist says."
    )
    sources = (
        "https://pgqueuer.readthedocs.io/en/latest/guides/performance-tuning/",
        "https://github.com/janbjorge/pgqueuer/blob/main/docs/development/benchmark.md: asyncpg over psycopg",
        "https://github.com/janbjorge/pgqueuer/blob/main/tools/benchmark.py: uvloop, queue managers side by side",
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
    options: ClassVar[Mapping[str, Any]] = {"batch_size": 500, "driver": "asyncpg", "managers": 2}
