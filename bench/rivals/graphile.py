"""graphile-worker: the fastest of the queues on PostgreSQL that we know."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, LiteralString

from bench.rivals.node import NODE, NodeRival
from bench.rivals.rival import ROOT

# Tried on two cores, rates against those with the settings of its performance page (24 jobs at once,
# a local queue of 500) in the same round of 200,000 jobs on a quiet machine, and the CPU of worker
# and server processes together against theirs:
#   a local queue of 1,000 1.2, CPU 0.90; of 2,000 1.3, CPU 0.84; of 5,000 1.4, CPU 0.77; of 10,000 CPU 0.76
#   100 jobs at once 1.1, 500 at once 1.0; with a local queue of 5,000 no difference
#   refetchDelay of 10 ms as in its perfTest 1.0: it is for queues that run empty
#   finished jobs gathered for 5 ms instead of 0 1.1; with a local queue of 5,000 and more no difference
#   0.17.3 on Node.js 20 (which 0.18 refuses) 0.8, on Node.js 24 1.0
_DOCUMENTED = {
    "concurrentJobs": 24,
    "maxPoolSize": 25,
    "localQueue": {"size": 500},
    "completeJobBatchDelay": 0,
    "failJobBatchDelay": 0,
}
_COMMON = (
    "24 jobs at once, completeJobBatchDelay and failJobBatchDelay 0, maxPoolSize 25, prepared statements (the "
    f"default), as on its performance page; successes are not logged, as in its perfTest; Node.js {NODE}. "
)


class Graphile(NodeRival):
    """Fetches batches into a local queue, and deletes finished jobs in batches of what has gathered."""

    name = "graphile"
    title = "graphile-worker"
    packages = ("graphile-worker@0.18.0",)
    settings = _COMMON + (
        "localQueue.size 5000 instead of 500, which its options recommend for high throughput and extremely fast "
        "tasks: the best that we found, 1.4 times as fast as with 500."
    )
    sources: ClassVar[tuple[str, ...]] = (
        "https://worker.graphile.org/docs/performance",
        "https://worker.graphile.org/docs/config (localQueue.size; also in the package's dist/index.d.ts)",
        "https://github.com/graphile/worker/blob/main/perfTest/graphile.config.js",
    )
    keeps = "Nothing: the row is deleted."
    tables = ("graphile_worker._private_jobs",)
    # The row that add_job() inserts: all the rest is the table's default.
    fill_sql = """
        WITH known AS (
            INSERT INTO graphile_worker._private_tasks (identifier) VALUES ('noop')
            ON CONFLICT (identifier) DO UPDATE SET identifier = excluded.identifier RETURNING id
        )
        INSERT INTO graphile_worker._private_jobs (task_id) SELECT known.id FROM known, generate_series(1, %s)
    """
    # From the newest on, which is the last to be run: before it are dead rows in their thousands.
    unfinished_sql = "SELECT (SELECT id FROM graphile_worker._private_jobs ORDER BY id DESC LIMIT 1) IS NOT NULL"
    finished_sql: ClassVar[LiteralString] = "SELECT count(*) FROM graphile_worker._private_jobs"
    waiting_sql = finished_sql
    options: ClassVar[Mapping[str, Any]] = {"worker": {**_DOCUMENTED, "localQueue": {"size": 5000}}}
    script_name = "graphile"

    def fill(self, dsn: str, tasks: int) -> int:
        """Start from an empty table, and remember how many were put into it."""
        self._filled = super().fill(dsn, tasks)
        return self._filled

    def finished(self, dsn: str) -> int:
        """Count what is gone, for nothing else is left of it."""
        return self._filled - super().finished(dsn)


class GraphileAsDocumented(Graphile):
    """The same with exactly what its performance page gives; it fetches as many at once as we do."""

    name = "graphile500"
    title = "graphile-worker as documented"
    settings = _COMMON + "localQueue.size 500, as there too."
    options: ClassVar[Mapping[str, Any]] = {"worker": _DOCUMENTED}

    @property
    def folder(self) -> Path:
        """Where it is installed: it is the same program."""
        return ROOT / ".bench" / Graphile.name
