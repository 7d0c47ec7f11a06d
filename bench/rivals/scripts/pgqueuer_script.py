"""pgqueuer's worker: `python pgqueuer_script.py work DSN OPTIONS`, in pgqueuer's environment."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import asyncpg
import psycopg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from progress import Meter, say


async def manager_for(driver: str, dsn: str) -> PgQueuer:
    """Connect a queue manager."""
    if driver == "asyncpg":
        return PgQueuer.from_asyncpg_connection(await asyncpg.connect(dsn))
    if driver == "asyncpg-pool":
        return PgQueuer.from_asyncpg_pool(await asyncpg.create_pool(dsn, min_size=4, max_size=4))
    return PgQueuer.from_psycopg_connection(await psycopg.AsyncConnection.connect(dsn, autocommit=True))


async def work(dsn: str, options: dict[str, Any]) -> None:
    """Run as many jobs as we are told, or until a SIGTERM."""
    managers = [await manager_for(options["driver"], dsn) for _ in range(options["managers"])]

    def stop() -> None:
        for manager in managers:
            manager.shutdown.set()

    meter = Meter(options["tasks"], stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    for manager in managers:

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:  # noqa: ARG001  # what an entrypoint takes
            meter.tick()

    say("ready")
    await asyncio.gather(*(manager.run(batch_size=options["batch_size"]) for manager in managers))
    meter.stopped()


if __name__ == "__main__":
    _, mode, address, facts = sys.argv
    uvloop.run(work(address, json.loads(facts)))
