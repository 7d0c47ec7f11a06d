"""procrastinate's schema and worker, in procrastinate's environment."""

from __future__ import annotations

import asyncio
from typing import Any

from procrastinate import App, PsycopgConnector
from progress import Meter, main, on_sigterm, say


def app_for(dsn: str, connections: int) -> App:
    """Make the app."""
    return App(connector=PsycopgConnector(conninfo=dsn, min_size=connections, max_size=connections))


async def prepare(dsn: str, options: dict[str, Any]) -> None:  # noqa: ARG001  # what a mode takes
    """Do what `procrastinate schema --apply` does."""
    async with app_for(dsn, 1).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def work(dsn: str, options: dict[str, Any]) -> None:
    """Run as many jobs as we are told, or until a SIGTERM."""
    app = app_for(dsn, options["connections"])
    workers: list[Any] = []

    def stop() -> None:
        for one in workers:
            one.cancel()

    meter = Meter(options["tasks"], stop)
    on_sigterm(stop)

    @app.task(name="noop")
    async def noop() -> None:
        meter.tick()

    async with app.open_async():
        say("ready")
        # Cancelling is how its documentation stops a worker: running jobs are finished and acknowledged first.
        workers += [
            asyncio.create_task(app.run_worker_async(concurrency=options["concurrency"], install_signal_handlers=False))
            for _ in range(options["workers"])
        ]
        await asyncio.gather(*workers, return_exceptions=True)
    meter.stopped()


if __name__ == "__main__":
    main({"prepare": prepare, "work": work})
