"""Oban's schema and worker, in Oban's environment."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from oban import Oban, job
from oban.schema import install
from progress import Meter, main, on_sigterm, say

meters: list[Meter] = []


@job(queue="default")
async def noop() -> None:
    """Count, and nothing else."""
    meters[0].tick()


async def prepare(dsn: str, options: dict[str, Any]) -> None:  # noqa: ARG001  # what a mode takes
    """Do what `oban install` does."""
    pool = await Oban.create_pool(dsn)
    await install(pool)
    await pool.close()


async def work(dsn: str, options: dict[str, Any]) -> None:
    """Run as many jobs as we are told, or until a SIGTERM."""
    stopping = asyncio.Event()
    meters.append(Meter(options["tasks"], stopping.set))
    on_sigterm(stopping.set)
    pool = await Oban.create_pool(dsn, max_size=options["connections"])
    queue = {"limit": options["limit"], "debounce_interval": options["debounce_s"]}
    async with Oban(pool=pool, queues={"default": queue}):
        say("ready")
        await stopping.wait()
    await pool.close()
    meters[0].stopped()


if __name__ == "__main__":
    main({"prepare": prepare, "work": work}, uvloop.run)
