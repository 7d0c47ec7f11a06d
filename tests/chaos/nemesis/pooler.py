"""A PgBouncer that is killed and started again."""

from random import Random

from tests.chaos.nemesis.fault import Fault


class RestartPooler(Fault):
    """SIGKILL of PgBouncer: all workers lose all connections, and find nobody for a moment."""

    name = "restart_pgbouncer"
    lane = "network"
    needs = ("pgbouncer",)

    def strike(self, rng: Random) -> None:
        """Kill it and start it again up to a lease later."""
        assert self.target.pgbouncer is not None, self.target.missing(self.needs)
        try:
            self.target.pgbouncer.kill()
            self.last(0.0, 1.0, rng)
        finally:
            self.undo()

    def undo(self) -> None:
        """Start it, if it does not run."""
        if self.target.pgbouncer is not None:
            self.target.pgbouncer.launch()
