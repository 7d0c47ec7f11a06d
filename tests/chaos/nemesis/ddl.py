"""Changes of the schema while workers are at work."""

import subprocess
import tempfile
import time
from random import Random
from typing import LiteralString

import psycopg
from psycopg import sql

from tests.chaos.nemesis.fault import Fault
from tests.database import Connection, rows
from tests.workers import environment, program, start

_TABLES = ("tasks", "leases", "history")
_COLUMN, _INDEX = "chaos_note", "chaos_index"
_MIGRATE_S_MAX = 60.0
_TRIES = 200
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


class MigrateUnderLoad(Fault):
    """What a migration does: `pgtasks migrate`, columns that come and go, an index that is built meanwhile.

    Each step waits for its lock a moment only, and tries again, as migrations have to.
    """

    name = "migrate"
    lane = "server"

    def strike(self, rng: Random) -> None:
        """Add a column to three tables and an index to one of history's partitions, migrate, remove them."""
        try:
            self._columns("ALTER TABLE pgtasks.{table} ADD COLUMN IF NOT EXISTS {column} text")
            self._index(rng)
            self._migrate()
        finally:
            self.undo()

    def undo(self) -> None:
        """Remove the index and the columns, if they are there."""
        with self.target.cluster.admin() as admin:
            _patiently(admin, sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS pgtasks.{}").format(sql.Identifier(_INDEX)))
        self._columns("ALTER TABLE pgtasks.{table} DROP COLUMN IF EXISTS {column}")

    def _columns(self, change: LiteralString) -> None:
        with self.target.cluster.admin() as admin:
            for table in _TABLES:
                parts = {"table": sql.Identifier(table), "column": sql.Identifier(_COLUMN)}
                _patiently(admin, sql.SQL(change).format(**parts))

    def _index(self, rng: Random) -> None:
        with self.target.cluster.admin() as admin:
            query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'pgtasks.history'::regclass"
            partition = rng.choice(sorted(name for (name,) in rows(admin, query)))
            parts = {"index": sql.Identifier(_INDEX), "table": sql.Identifier(*partition.split("."))}
            drop = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS pgtasks.{index}").format(**parts)
            create = sql.SQL("CREATE INDEX CONCURRENTLY {index} ON {table} (id)").format(**parts)
            _patiently(admin, create, first=drop)

    def _migrate(self) -> None:
        with tempfile.TemporaryFile() as output:
            env = environment(self.target.cluster.dsn, "owner")
            process = start([program(), "migrate"], env, output.fileno())
            try:
                code = process.wait(_MIGRATE_S_MAX)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                process.kill()
                process.wait()
            output.seek(0)
            assert code == 0, f"pgtasks migrate ended with {code}:\n{output.read().decode()}"


def _patiently(admin: Connection, statement: sql.Composed, *, first: sql.Composed | None = None) -> None:
    """Run a statement that needs a lock; it waits for 200 ms at a time, so that nobody queues behind it for long.

    A concurrent build that was given up leaves an invalid index, which `first` removes.
    """
    admin.execute("SET lock_timeout = '200ms'")
    for _ in range(_TRIES):
        try:
            if first is not None:
                admin.execute(first)
            admin.execute(statement)
        except _BUSY:
            time.sleep(0.05)  # others get their turn
        else:
            return
    raise AssertionError(f"no lock within {_TRIES} tries: {statement.as_string(admin)}")
