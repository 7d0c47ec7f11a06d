"""awa's schema, backlog and worker, in awa's environment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient
from progress import Meter, main, on_sigterm, say

BATCH = 10_000


@dataclass
class Noop:
    """A job without arguments."""


def client_for(dsn: str, **options: Any) -> AsyncClient:
    """Connect; its driver insists on a host, and then takes the socket's folder from the query all the same."""
    return AsyncClient(dsn.replace("@/", "@localhost/"), **options)


async def prepare(dsn: str, options: dict[str, Any]) -> None:  # noqa: ARG001  # what a mode takes
    """Do what `python -m awa migrate` does, and activate the storage that is meant for speed."""
    async with client_for(dsn) as client:
        await client.migrate()
        await client.install_queue_storage()


async def fill(dsn: str, options: dict[str, Any]) -> None:
    """Start from an empty storage, and enqueue by COPY, its fastest way."""
    async with client_for(dsn) as client:
        await client.install_queue_storage(reset=True)
        left = options["tasks"]
        while left:
            some = min(left, BATCH)
            await client.enqueue_many_copy([Noop()] * some, queue="default")
            left -= some


async def work(dsn: str, options: dict[str, Any]) -> None:
    """Run as many jobs as we are told, or until a SIGTERM."""
    stopping = asyncio.Event()
    meter = Meter(options["tasks"], stopping.set)
    on_sigterm(stopping.set)
    client = client_for(dsn, max_connections=options["connections"])

    @client.task(Noop, queue="default")
    async def noop(job: Any) -> None:  # noqa: ARG001  # what a handler takes
        meter.tick()

    await client.start([{"name": "default", "max_workers": options["max_workers"], **options.get("queue", {})}])
    say("ready")
    await stopping.wait()
    await client.shutdown()
    await client.close()
    meter.stopped()


if __name__ == "__main__":
    main({"prepare": prepare, "fill": fill, "work": work})
