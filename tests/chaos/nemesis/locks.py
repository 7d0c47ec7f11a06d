"""Sessions of others that are in the way: a lock on the table of tasks, a snapshot that nobody closes."""

from random import Random
from typing import LiteralString

import psycopg

from tests.chaos.nemesis.fault import Fault, Missed

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '20s'"


class _Transaction(Fault):
    """A transaction that is open for a while."""

    lane = "server"
    statements: tuple[LiteralString, ...]
    leases: tuple[float, float]

    def strike(self, rng: Random) -> None:
        """Open it, keep it, roll it back."""
        with self.target.cluster.admin() as admin:
            try:
                for statement in self.statements:
                    admin.execute(statement)
            except psycopg.errors.LockNotAvailable:
                raise Missed("somebody else held the lock") from None
            self.last(*self.leases, rng)
            admin.execute("ROLLBACK")

    def undo(self) -> None:
        """Its session has ended with `strike`."""


class TableLock(_Transaction):
    """`LOCK TABLE pgtasks.tasks` as ALTER TABLE and VACUUM FULL take it, for twice the lease."""

    name = "table_lock"
    statements = ("BEGIN", _LOCK_TIMEOUT, "LOCK TABLE pgtasks.tasks IN ACCESS EXCLUSIVE MODE")
    leases = (2.0, 2.0)


class OldSnapshot(_Transaction):
    """A forgotten transaction: vacuum may remove nothing that died since it began."""

    name = "old_snapshot"
    statements = ("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pgtasks.tasks")
    leases = (2.0, 5.0)
