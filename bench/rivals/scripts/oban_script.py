"""Oban's schema, worker and producer, in Oban's environment."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from modes import Handler, Options, Producer, main
from oban import Oban, job
from oban.schema import install
from progress import say

handlers: list[Handler] = []


@job(queue="default")
async def noop(payload: str = "") -> None:
    """Call what the mode wants called."""
    handlers[0](payload)


async def prepare(dsn: str, options: Options) -> None:  # noqa: ARG001  # what the mode gives
    """Do what `oban install` does."""
    pool = await Oban.create_pool(dsn)
    await install(pool)
    await pool.close()


async def work(dsn: str, options: Options, handler: Handler, stopping: asyncio.Event) -> None:
    """Run a worker until it is told to stop."""
    handlers.append(handler)
    pool = await Oban.create_pool(dsn, max_size=options["connections"])
    queue = {"limit": options["limit"], "debounce_interval": options["debounce_s"]}
    async with Oban(pool=pool, queues={"default": queue}):
        say("ready")
        await stopping.wait()
    await pool.close()


@asynccontextmanager
async def producer(dsn: str, options: Options) -> AsyncIterator[Producer]:  # noqa: ARG001  # what the mode gives
    """Connect a producer."""
    pool = await Oban.create_pool(dsn, max_size=1)
    async with Oban(pool=pool, name="producer") as oban:
        yield Producer(
            lambda payload: oban.enqueue(noop.new(payload)),
            lambda tasks: oban.enqueue_many([noop.new() for _ in range(tasks)]),
        )
    await pool.close()


def payload(task: str) -> str:
    """Give what came with it."""
    return task


if __name__ == "__main__":
    main(sys.modules[__name__], uvloop.run)
