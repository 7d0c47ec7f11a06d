"""A disk without room."""

import time
from random import Random
from typing import LiteralString

import psycopg

from tests.chaos.nemesis.fault import Fault, Missed

# The first grows files until there is no room, and leaves nothing. The second needs a new segment of WAL in the end.
_GROW = "CREATE TEMPORARY TABLE chaos_ballast AS SELECT repeat('x', 500) FROM generate_series(1, 100000)"
_LOG = "SELECT pg_logical_emit_message(true, 'chaos', repeat('x', 1000000))"
_PROVOKE_S_MAX = 20.0


class DiskFull(Fault):
    """A full disk: statements fail (53100), or the server crashes for want of WAL and cannot recover."""

    name = "disk_full"
    lane = "server"
    needs = ("disk",)

    def strike(self, rng: Random) -> None:
        """Fill the disk, see statements fail or the server crash, make room up to two leases later."""
        assert self.target.cluster.disk is not None, self.target.missing(self.needs)
        try:
            self.target.cluster.disk.fill()
            self._provoke(rng.choice((_GROW, _LOG)))
            self.last(0.0, 2.0, rng)
        finally:
            self.undo()

    def undo(self) -> None:
        """Make room; a server that has given up is started again."""
        if self.target.cluster.disk is not None:
            self.target.cluster.disk.clear()
            self.target.cluster.revive()

    def _provoke(self, statement: LiteralString) -> None:
        deadline = time.monotonic() + _PROVOKE_S_MAX
        while time.monotonic() < deadline:
            try:
                with self.target.cluster.admin() as admin:
                    admin.execute(statement)
            except psycopg.OperationalError:  # DiskFull is one, too
                return
        raise Missed("there was room all the time")
