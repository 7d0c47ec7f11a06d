"""pgqueuer's schema, worker and producer, in pgqueuer's environment."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import psycopg
import uvloop
from modes import Handler, Options, Producer, main, until
from pgqueuer import PgQueuer, Queries
from pgqueuer.models import Job
from progress import say


async def manager_for(driver: str, dsn: str) -> PgQueuer:
    """Connect a queue manager."""
    if driver == "asyncpg":
        return PgQueuer.from_asyncpg_connection(await asyncpg.connect(dsn))
    if driver == "asyncpg-pool":
        return PgQueuer.from_asyncpg_pool(await asyncpg.create_pool(dsn, min_size=4, max_size=4))
    return PgQueuer.from_psycopg_connection(await psycopg.AsyncConnection.connect(dsn, autocommit=True))


async def prepare(dsn: str, options: Options) -> None:
    """Do what `pgq install` and `pgq autovac` do."""
    queries = Queries((await manager_for(options["driver"], dsn)).connection)
    await queries.install()
    await queries.optimize_autovacuum()


async def work(dsn: str, options: Options, handler: Handler, stopping: asyncio.Event) -> None:
    """Run a worker until it is told to stop."""
    managers = [await manager_for(options["driver"], dsn) for _ in range(options["managers"])]
    for manager in managers:

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:
            handler(job)

    say("ready")
    runs = asyncio.gather(*(manager.run(batch_size=options["batch_size"]) for manager in managers))
    await until(stopping, runs)
    for manager in managers:
        manager.shutdown.set()
    await runs


@asynccontextmanager
async def producer(dsn: str, options: Options) -> AsyncIterator[Producer]:
    """Connect a producer."""
    queries = Queries((await manager_for(options["driver"], dsn)).connection)

    async def one(payload: str) -> None:
        await queries.enqueue("noop", payload.encode())

    async def many(tasks: int) -> None:
        await queries.enqueue(["noop"] * tasks, [b""] * tasks, [0] * tasks)

    yield Producer(one, many)


def payload(task: Job) -> str:
    """Give what came with it."""
    return (task.payload or b"").decode()


if __name__ == "__main__":
    main(sys.modules[__name__], uvloop.run)
