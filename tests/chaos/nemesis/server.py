"""Faults of the server: a backend that dies, a crash, all sessions ended."""

from random import Random

from tests.chaos.nemesis.fault import Fault, Missed


class _ServerFault(Fault):
    lane = "server"

    def undo(self) -> None:
        """Start the server, if it is down, and wait until it takes writes."""
        self.target.cluster.revive()


class KillBackend(_ServerFault):
    """SIGKILL of the process behind one session: the server disconnects all and recovers."""

    name = "kill_backend"

    def strike(self, rng: Random) -> None:
        """Kill one backend and wait for the recovery."""
        found = self.target.cluster.backends()
        if not found:
            raise Missed("nobody is connected")
        try:
            self.target.cluster.kill_backend(rng.choice(found))
        except ProcessLookupError:
            raise Missed("the session has ended by itself") from None
        self.undo()


class CrashServer(_ServerFault):
    """`pg_ctl -m immediate restart`: a crash with recovery from the WAL."""

    name = "crash_server"

    def strike(self, rng: Random) -> None:
        """Crash and start it."""
        try:
            self.target.cluster.restart("immediate")
        finally:
            self.undo()


class TerminateSessions(_ServerFault):
    """`pg_terminate_backend` for every client."""

    name = "terminate_sessions"

    def strike(self, rng: Random) -> None:
        """End all sessions."""
        if not self.target.cluster.terminate_all():
            raise Missed("nobody is connected")
