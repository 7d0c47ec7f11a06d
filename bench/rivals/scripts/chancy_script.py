"""Chancy's schema, worker and producer, in Chancy's environment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from chancy import Chancy, Queue, Worker, job
from modes import Handler, Options, Producer, main
from progress import say

handlers: list[Handler] = []


@job()
async def noop(*, payload: str = "") -> None:
    """Call what the mode wants called."""
    handlers[0](payload)


def app_for(dsn: str) -> Chancy:
    """Make an app, with its default plugins and a log that is quiet."""
    log = logging.getLogger("chancy")
    log.setLevel(logging.WARNING)
    return Chancy(dsn, log=log)


async def prepare(dsn: str, options: Options) -> None:
    """Do what `chancy misc migrate` does, and declare the queue."""
    async with app_for(dsn) as app:
        await app.migrate()
        await app.declare(
            Queue(
                "default",
                concurrency=options["concurrency"],
                executor=Chancy.Executor.Async,
                eager_polling=True,
                polling_interval=1,
            )
        )


async def work(dsn: str, options: Options, handler: Handler, stopping: asyncio.Event) -> None:
    """Run a worker until it is told to stop."""
    handlers.append(handler)
    async with app_for(dsn) as app:
        worker = Worker(app, register_signal_handlers=False)
        worker.send_outgoing_interval = options["outgoing_s"]
        async with worker:
            say("ready")
            await stopping.wait()


@asynccontextmanager
async def producer(dsn: str, options: Options) -> AsyncIterator[Producer]:  # noqa: ARG001  # what the mode gives
    """Connect a producer."""
    async with app_for(dsn) as app:

        async def many(tasks: int) -> None:
            async for _ in app.push_many([noop.job] * tasks):
                pass

        yield Producer(lambda payload: app.push(noop.job.with_kwargs(payload=payload)), many)


def payload(task: str) -> str:
    """Give what came with it."""
    return task


if __name__ == "__main__":
    # Chancy imports a job's function by its module, and this run of the file is no module of that name.
    import chancy_script

    main(chancy_script, uvloop.run)
