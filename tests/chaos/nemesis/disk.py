"""A disk without room."""

import time
from random import Random

import psycopg

from tests.chaos.nemesis.fault import Fault, Missed

_PROVOKE_S_MAX = 20.0
# Grows until there is no room, and leaves nothing.
_GROW = "CREATE TEMPORARY TABLE chaos_ballast AS SELECT repeat('x', 500) FROM generate_series(1, 100000)"


class DiskFull(Fault):
    """A full disk: statements fail (53100), and the server may crash again and again until there is room."""

    name = "disk_full"
    lane = "server"
    needs = ("disk",)

    def strike(self, rng: Random) -> None:
        """Fill the disk, see a statement fail, keep it full for up to two leases, make room."""
        assert self.target.cluster.disk is not None, self.target.missing(self.needs)
        try:
            self.target.cluster.disk.fill()
            self._provoke()
            self.last(0.0, 2.0, rng)
        finally:
            self.undo()

    def undo(self) -> None:
        """Make room; a server that has given up is started again."""
        if self.target.cluster.disk is not None:
            self.target.cluster.disk.clear()
            self.target.cluster.start()
            self.target.cluster.wait_ready()

    def _provoke(self) -> None:
        deadline = time.monotonic() + _PROVOKE_S_MAX
        while time.monotonic() < deadline:
            try:
                with self.target.cluster.admin() as admin:
                    admin.execute(_GROW)
            except (psycopg.errors.DiskFull, psycopg.OperationalError):
                return
        raise Missed("there was room all the time")
