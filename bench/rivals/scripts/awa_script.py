"""awa's schema, backlog, worker and producer, in awa's environment."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient
from modes import Handler, Options, Producer, main
from progress import say

BATCH = 10_000


@dataclass
class Noop:
    """A job's arguments."""

    payload: str = ""


def client_for(dsn: str, **options: Any) -> AsyncClient:
    """Connect; its driver insists on a host, and then takes the socket's folder from the query all the same."""
    return AsyncClient(dsn.replace("@/", "@localhost/"), **options)


async def prepare(dsn: str, options: Options) -> None:  # noqa: ARG001  # what the mode gives
    """Do what `python -m awa migrate` does, and activate the storage that is meant for speed."""
    async with client_for(dsn) as client:
        await client.migrate()
        await client.install_queue_storage()


async def enqueue(client: AsyncClient, tasks: int) -> None:
    """Enqueue by COPY, its fastest way."""
    for start in range(0, tasks, BATCH):
        await client.enqueue_many_copy([Noop()] * min(BATCH, tasks - start), queue="default")


async def fill(dsn: str, options: Options) -> None:
    """Start from an empty storage, and enqueue."""
    async with client_for(dsn) as client:
        await client.install_queue_storage(reset=True)
        await enqueue(client, options["tasks"])


async def work(dsn: str, options: Options, handler: Handler, stopping: asyncio.Event) -> None:
    """Run a worker until it is told to stop."""
    client = client_for(dsn, max_connections=options["connections"])

    @client.task(Noop, queue="default")
    async def noop(job: Any) -> None:
        handler(job)

    await client.start([{"name": "default", "max_workers": options["max_workers"], **options["queue"]}])
    say("ready")
    await stopping.wait()
    await client.shutdown()
    await client.close()


@asynccontextmanager
async def producer(dsn: str, options: Options) -> AsyncIterator[Producer]:  # noqa: ARG001  # what the mode gives
    """Connect a producer."""
    async with client_for(dsn) as client:
        yield Producer(
            lambda payload: client.insert(Noop(payload), queue="default"),
            lambda tasks: enqueue(client, tasks),
        )


def payload(task: Any) -> str:
    """Give what came with it."""
    return str(task.args.payload)


if __name__ == "__main__":
    main(sys.modules[__name__])
