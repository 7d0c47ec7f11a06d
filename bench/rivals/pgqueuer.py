"""pgqueuer: the fastest of the Python queues on PostgreSQL that we know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals import install
from bench.rivals.rival import SCRIPTS, Command, PostgresRival

LOG = "pgqueuer_log"


class Pgqueuer(PostgresRival):
    """Claims batches with SKIP LOCKED, acknowledges them in batches of the same size."""

    name = "pgqueuer"
    title = "pgqueuer"
    packages = ("pgqueuer[asyncpg,psycopg]==1.6.0", "uvloop==0.23.0")
    settings = ""
    sources = ()
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
    options: ClassVar[Mapping[str, Any]] = {"batch_size": 500, "driver": "asyncpg", "managers": 1}

    def install(self) -> None:
        """Install it into an environment of its own."""
        install.python_environment(self.folder, self.packages)

    def prepare(self, dsn: str) -> None:
        """Install its schema, durable, and the settings of autovacuum that it recommends."""
        for words in (("install",), ("autovac",)):
            install.checked([self._python, "-m", "pgqueuer", "--pg-dsn", dsn, *words])

    def worker(self, dsn: str, tasks: int) -> Command:
        """Give the worker."""
        return self._script("work", dsn, tasks=tasks)

    @property
    def _python(self) -> str:
        return str(self.folder / "bin" / "python")

    def _script(self, mode: str, dsn: str, **facts: Any) -> Command:
        script = str(SCRIPTS / "pgqueuer_script.py")
        return Command([self._python, script, mode, dsn, json.dumps({**self.options, **facts})])
