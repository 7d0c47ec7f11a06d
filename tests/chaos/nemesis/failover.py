"""A primary that is lost, and the standby that takes its place."""

from random import Random

from tests.chaos.nemesis.fault import Fault


class Failover(Fault):
    """A crash of the primary, promotion of the standby; the old primary becomes the new one's standby."""

    name = "failover"
    lane = "server"
    needs = ("standby",)

    def strike(self, rng: Random) -> None:
        """Fail over, and build the next standby."""
        try:
            self.target.cluster.failover()
        finally:
            self.undo()

    def undo(self) -> None:
        """Have a primary and a standby that commits wait for."""
        self.target.cluster.revive()
        self.target.cluster.rejoin()
