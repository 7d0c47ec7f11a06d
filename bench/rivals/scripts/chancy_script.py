"""Chancy's schema and worker, in Chancy's environment."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvloop
from chancy import Chancy, Queue, Worker, job
from progress import Meter, main, on_sigterm, say

meters: list[Meter] = []


@job()
async def noop() -> None:
    """Count, and nothing else."""
    meters[0].tick()


def app_for(dsn: str) -> Chancy:
    """Make the app, with its default plugins and a log that is quiet."""
    log = logging.getLogger("chancy")
    log.setLevel(logging.WARNING)
    return Chancy(dsn, log=log)


async def prepare(dsn: str, options: dict[str, Any]) -> None:
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


async def work(dsn: str, options: dict[str, Any]) -> None:
    """Run as many jobs as we are told, or until a SIGTERM."""
    stopping = asyncio.Event()
    meters.append(Meter(options["tasks"], stopping.set))
    on_sigterm(stopping.set)
    async with app_for(dsn) as app:
        worker = Worker(app, register_signal_handlers=False)
        worker.send_outgoing_interval = options["outgoing_s"]
        async with worker:
            say("ready")
            await stopping.wait()
    meters[0].stopped()


if __name__ == "__main__":
    # Chancy imports a job's function by its module, and this run of the file is no module of that name.
    import chancy_script

    main({"prepare": chancy_script.prepare, "work": chancy_script.work}, uvloop.run)
