"""A server without a free place for one more session."""

from random import Random

import psycopg

from tests.chaos.nemesis.fault import Fault, Target
from tests.database import Connection

# What libpq says; an error of a connection attempt has no code.
FULL = ("too many clients", "connection slots are reserved", "too many connections")
_MORE_THAN_ANY_LIMIT = 2000
_CONNECT_S_MAX = 10


class ConnectionLimit(Fault):
    """All of `max_connections` are taken (53300) while a few sessions of workers end, which find their places gone."""

    name = "connection_limit"
    lane = "server"

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._crowd: list[Connection] = []

    def strike(self, rng: Random) -> None:
        """Take all places for one to two leases."""
        try:
            self._fill()
            self._evict(rng)
            self._fill()
            self.last(1.0, 2.0, rng)
        finally:
            self.undo()

    def undo(self) -> None:
        """Leave."""
        crowd, self._crowd = self._crowd, []
        for connection in crowd:
            connection.close()

    def _fill(self) -> None:
        for _ in range(_MORE_THAN_ANY_LIMIT):
            try:
                self._crowd.append(self._connect())
            except psycopg.OperationalError as error:
                if any(text in str(error) for text in FULL):
                    return
                raise
        raise AssertionError("the server lets everybody in")

    def _connect(self) -> Connection:
        return psycopg.connect(
            self.target.cluster.dsn, application_name="chaos", connect_timeout=_CONNECT_S_MAX, autocommit=True
        )

    def _evict(self, rng: Random) -> None:
        """End up to five sessions of others, through a session that is there already."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE backend_type ="
            " 'client backend' AND application_name <> 'chaos' ORDER BY md5(pid::text || %s) LIMIT 5) AS evicted"
        )
        self._crowd[0].execute(query, (str(rng.random()),))
