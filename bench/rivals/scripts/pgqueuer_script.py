"""pgqueuer's schema and worker, in pgqueuer's environment."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import psycopg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.models import Job
from progress import Meter, main, on_sigterm, say


async def manager_for(driver: str, dsn: str) -> PgQueuer:
    """Connect a queue manager."""
    if driver == "asyncpg":
        return PgQueuer.from_asyncpg_connection(await asyncpg.connect(dsn))
    if driver == "asyncpg-pool":
        return PgQueuer.from_asyncpg_pool(await asyncpg.create_pool(dsn, min_size=4, max_size=4))
    return PgQueuer.from_psycopg_connection(await psycopg.AsyncConnection.connect(dsn, autocommit=True))


async def prepare(dsn: str, options: dict[str, Any]) -> None:
    """Do what `pgq install` and `pgq autovac` do."""
    queries = Queries((await manager_for(options["driver"], dsn)).connection)
    await queries.install()
    await queries.optimize_autovacuum()


async def work(dsn: str, options: dict[str, Any]) -> None:
    """Run as many jobs as we are told, or until a SIGTERM."""
    managers = [await manager_for(options["driver"], dsn) for _ in range(options["managers"])]

    def stop() -> None:
        for manager in managers:
            manager.shutdown.set()

    meter = Meter(options["tasks"], stop)
    on_sigterm(stop)
    for manager in managers:

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:  # noqa: ARG001  # what an entrypoint takes
            meter.tick()

    say("ready")
    await asyncio.gather(*(manager.run(batch_size=options["batch_size"]) for manager in managers))
    meter.stopped()


if __name__ == "__main__":
    main({"prepare": prepare, "work": work}, uvloop.run)
