"""procrastinate's schema, worker and producer, in procrastinate's environment."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from modes import Handler, Options, Producer, main, until
from procrastinate import App, PsycopgConnector
from progress import say


def app_for(dsn: str, connections: int) -> App:
    """Make an app."""
    return App(connector=PsycopgConnector(conninfo=dsn, min_size=connections, max_size=connections))


async def prepare(dsn: str, options: Options) -> None:  # noqa: ARG001  # what the mode gives
    """Do what `procrastinate schema --apply` does."""
    async with app_for(dsn, 1).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def work(dsn: str, options: Options, handler: Handler, stopping: asyncio.Event) -> None:
    """Run a worker until it is told to stop."""
    app = app_for(dsn, options["connections"])

    @app.task(name="noop")
    async def noop(payload: str = "") -> None:
        handler(payload)

    async with app.open_async():
        say("ready")
        run = partial(app.run_worker_async, concurrency=options["concurrency"], install_signal_handlers=False)
        workers = asyncio.gather(*(run() for _ in range(options["workers"])))
        await until(stopping, workers)
        # Its documentation's way: what runs is finished and acknowledged first.
        workers.cancel()
        with suppress(asyncio.CancelledError):
            await workers


@asynccontextmanager
async def producer(dsn: str, options: Options) -> AsyncIterator[Producer]:  # noqa: ARG001  # what the mode gives
    """Connect a producer."""
    app = app_for(dsn, 1)

    @app.task(name="noop")
    async def noop(payload: str = "") -> None:
        """Run elsewhere."""

    async def many(tasks: int) -> None:
        await noop.batch_defer_async(*([{}] * tasks))

    async with app.open_async():
        yield Producer(lambda payload: noop.defer_async(payload=payload), many)


def payload(task: str) -> str:
    """Give what came with it."""
    return task


if __name__ == "__main__":
    main(sys.modules[__name__])
