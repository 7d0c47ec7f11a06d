"""What a Python rival's script can do: make its schema, work, enqueue, and show how soon it picks a task up.

A script gives four functions, and `main` does the rest: the same for each of them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol

from progress import Meter, on_sigterm, say

Options = dict[str, Any]
Handler = Callable[[Any], None]
# Until a worker is connected, listening and idle; and until the last task must have arrived.
IDLE_S, ARRIVE_S = 2.0, 30.0
# So many tasks are sent first and not counted, as for the worker that it is compared with: statements are
# prepared then, and code is warm.
WARM_UP = 30


class Producer(NamedTuple):
    """How tasks are enqueued by its own API: one with a payload, or so many without in the fewest calls."""

    one: Callable[[str], Awaitable[object]]
    many: Callable[[int], Awaitable[object]]


class Script(Protocol):
    """The functions of a script."""

    def prepare(self, dsn: str, options: Options) -> Coroutine[Any, Any, None]:
        """Make the schema."""

    def work(self, dsn: str, options: Options, handler: Handler, stopping: asyncio.Event) -> Coroutine[Any, Any, None]:
        """Run a worker until it is told to stop and has acknowledged everything; each task calls the handler."""

    def producer(self, dsn: str, options: Options) -> AbstractAsyncContextManager[Producer]:
        """Connect a producer."""

    def payload(self, task: Any) -> str:
        """Give the payload of what a handler was called with."""


async def until(stopping: asyncio.Event, running: asyncio.Future[Any]) -> None:
    """Wait for the order to stop; a worker that fails before raises what it failed with."""
    order = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({order, running}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        order.cancel()
        running.result()


async def _work(script: Script, dsn: str, options: Options) -> None:
    stopping = asyncio.Event()
    meter = Meter(options["tasks"], stopping.set)
    on_sigterm(stopping.set)
    await script.work(dsn, options, meter.tick, stopping)
    meter.stopped()


async def _enqueue(script: Script, dsn: str, options: Options) -> None:
    tasks: int = options["tasks"]
    async with script.producer(dsn, options) as producer:
        say("first", at=time.time())
        if options["how"] == "bulk":
            await producer.many(tasks)
        else:
            for _ in range(tasks):
                await producer.one("")
        say("last", at=time.time(), tasks=tasks)


async def _latency(script: Script, dsn: str, options: Options) -> None:
    stopping = asyncio.Event()
    arrived: asyncio.Queue[float] = asyncio.Queue()

    def arrive(task: Any) -> None:
        arrived.put_nowait(time.time() - float(script.payload(task)))

    worker = asyncio.create_task(script.work(dsn, options, arrive, stopping))
    async with script.producer(dsn, options) as producer:
        # A worker that cannot start fails here, and not at the end.
        await asyncio.wait({worker}, timeout=IDLE_S)
        if worker.done():
            worker.result()
        await _latencies_s(producer, arrived, WARM_UP, options["every_s"])
        latencies_s = await _latencies_s(producer, arrived, options["tasks"], options["every_s"])
    stopping.set()
    await worker
    say("latencies", s=latencies_s)


async def _latencies_s(producer: Producer, arrived: asyncio.Queue[float], tasks: int, every_s: float) -> list[float]:
    """Send tasks, one every so often, and wait until all of them have arrived."""
    start_s = time.monotonic()
    for number in range(tasks):
        await asyncio.sleep(start_s + number * every_s - time.monotonic())
        await producer.one(repr(time.time()))
    async with asyncio.timeout(ARRIVE_S):
        return [await arrived.get() for _ in range(tasks)]


def main(script: Any, run: Callable[[Coroutine[Any, Any, None]], object] = asyncio.run) -> None:
    """Run the mode that the command line asks for: MODE DSN OPTIONS."""
    _, mode, dsn, options = sys.argv
    own = {name: getattr(script, name) for name in ("prepare", "fill") if hasattr(script, name)}
    shared = {
        "work": partial(_work, script),
        "enqueue": partial(_enqueue, script),
        "latency": partial(_latency, script),
    }
    run({**own, **shared}[mode](dsn, json.loads(options)))
