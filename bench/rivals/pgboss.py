"""pg-boss: the most used queue on PostgreSQL for Node.js."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals.node import NODE, NodeRival

# Tried on two cores beside other load, by the CPU of worker and server processes per job (rates
# there differ twofold from run to run), against batches of 500 for two handlers: batches of 1,000
# 0.84, of 2,000 0.83 (but no faster), one handler 0.88 (but slower), four 0.94; without a table of
# the queue's own 0.90, which is within what runs differ by.


class Pgboss(NodeRival):
    """Fetches batches with SKIP LOCKED, hands each batch to one handler, and completes it whole."""

    name = "pgboss"
    title = "pg-boss"
    script_name = "pgboss"
    packages = ("pg-boss@12.38.0",)
    settings = (
        "A handler that gets 1,000 jobs and finishes them together (batchSize), two of them at once "
        "(localConcurrency), the next batch at once after a full one (burstWhenBatchFull), woken by NOTIFY "
        "(useListenNotify, notify), a table of the queue's own (partition); its instance, monitoring and maintenance "
        f"have their defaults; Node.js {NODE}."
    )
    sources = (
        "https://pgboss.io/api/workers (batchSize, localConcurrency, burst triggers; also in dist/types.d.ts)",
        "https://pgboss.io/api/queues (partition, notify)",
    )
    keeps = "The row stays, updated to completed, for 7 days (deleteAfterSeconds, its default)."
    tables = ("pgboss.job",)
    # What send() inserts for a queue that has all defaults.
    fill_sql = "INSERT INTO pgboss.job (name, policy) SELECT 'noop', 'standard' FROM generate_series(1, %s)"
    # Ordered as its index on live jobs is, so that what is finished is not read again and again.
    unfinished_sql = """
        SELECT (
            SELECT id FROM pgboss.job WHERE name = 'noop' AND state IN ('created', 'retry', 'active', 'failed')
            ORDER BY state, blocked, start_after LIMIT 1
        ) IS NOT NULL
    """
    finished_sql = "SELECT count(*) FROM pgboss.job WHERE name = 'noop' AND state = 'completed'"
    waiting_sql = "SELECT count(*) FROM pgboss.job WHERE name = 'noop' AND state = 'created'"
    options: ClassVar[Mapping[str, Any]] = {
        "boss": {"useListenNotify": True},
        "queue": {"partition": True, "notify": True},
        "work": {
            "batchSize": 1000,
            "localConcurrency": 2,
            "burstWhenBatchFull": True,
            "pollingIntervalSeconds": 0.5,
        },
    }
