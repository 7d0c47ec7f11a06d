"""The connections of one worker: one per moving part, and one way to the server for all of them."""

from __future__ import annotations

from pgtasks.engine.heartbeat import beat_deadline_s
from pgtasks.engine.server_watch import ServerWatch
from pgtasks.settings import WorkerSettings
from pgtasks.store.link import Link
from pgtasks.store.route import Route


class Connections:
    """Opened when first used; the listening session is the bell's."""

    def __init__(self, dsn: str, settings: WorkerSettings, worker: str) -> None:
        self.route = Route()
        pooler = settings.pooler
        self.claim = Link(dsn, "claim", worker=worker, pooler=pooler, route=self.route)
        self.finish = Link(dsn, "finish", worker=worker, pooler=pooler, route=self.route)
        self.schedule = Link(dsn, "schedule", worker=worker, pooler=pooler, route=self.route)
        self.heartbeat = Link(
            dsn,
            "heartbeat",
            worker=worker,
            pooler=pooler,
            deadline_s=beat_deadline_s(settings.lease_s),
            route=self.route,
            on_server=ServerWatch().seen,
        )
        self.listen_dsn = settings.listen_dsn or dsn
        self.listens = pooler == "none" or bool(settings.listen_dsn)

    async def close(self) -> None:
        """Close those of the engine's loop; the heartbeat closes its own in its thread."""
        for link in (self.claim, self.finish, self.schedule):
            await link.close()
