"""`pgtasks scheduler`: the scheduler as a process of its own, without an app and without claims.

SIGTERM, Ctrl-C or SIGHUP stop it: the round under way ends, which is one statement at most, and
the exit code is 0. A second signal ends it at once with 130. Killed, it loses nothing: whatever
it has not committed is still due, for any other scheduler and for its own next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import uuid

from pgtasks import events
from pgtasks.engine.bell import Bell
from pgtasks.engine.departure import EXIT_INTERRUPTED, EXIT_OK
from pgtasks.engine.periodic import Signal, repeat
from pgtasks.engine.rebirth import SIGNALS
from pgtasks.engine.scheduler import Scheduler
from pgtasks.store import ringing, statements
from pgtasks.store.link import Link
from pgtasks.store.route import Route

# How long the statement under way gets to end.
STOP_S = 5.0


def run(dsn: str, *, pooler: str, listen_dsn: str = "") -> int:
    """Fire schedules until stopped; gives the process's exit code.

    ``listen_dsn`` is a direct connection string for LISTEN, where ``dsn`` leads through a pooler.

    Raises DatabaseUnavailable when the database cannot be reached at the start. Must be called
    in the main thread, which is the one that gets signals.
    """
    return asyncio.run(_run(dsn, pooler, listen_dsn))


async def _run(dsn: str, pooler: str, listen_dsn: str) -> int:
    process = SchedulerProcess(dsn, pooler, listen_dsn)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, process.on_signal, number)
    try:
        return await process.work()
    finally:
        await process.close()


class SchedulerProcess:
    """One process that fires schedules."""

    def __init__(self, dsn: str, pooler: str, listen_dsn: str) -> None:
        rng = random.Random()
        tag = uuid.uuid4().hex[:12]
        route = Route()
        self._link = Link(dsn, "schedule", worker=tag, pooler=pooler, route=route)
        # Of the doorbell only its session is used: it hears that a schedule was changed.
        self._bell = Bell(
            listen_dsn or dsn,
            (),
            worker=tag,
            wanted=pooler == "none" or bool(listen_dsn),
            notify=lambda channel: self._link.fetch_all(ringing.notify(channel)),
            on_cancel=lambda _task_id: None,
            on_schedules=self._changed,
            route=route,
        )
        self._scheduler = Scheduler(self._link, rng, lambda: self._bell.hears)
        self._rng = rng
        self._stop = Signal()

    def _changed(self) -> None:
        self._scheduler.changed.set()

    def on_signal(self, number: int) -> None:
        """Begin to stop, or end at once when it is the second signal."""
        events.info("signal received", signal=signal.Signals(number).name)
        if self._stop.is_set():
            os._exit(EXIT_INTERRUPTED)
        self._stop.set()

    async def work(self) -> int:
        """Fire schedules until a signal comes; gives the exit code."""
        await self._link.fetch_all(statements.clock())
        events.info("scheduler started")
        schedule = asyncio.create_task(
            repeat("schedule", self._scheduler.round, stop=self._stop, rng=self._rng, wake=self._scheduler.changed)
        )
        listen = asyncio.create_task(
            repeat("listen", self._bell.keep_session, stop=self._stop, rng=self._rng, wake=self._bell.lost)
        )
        await self._stop.wait()
        await asyncio.wait({schedule}, timeout=STOP_S)
        for part in (schedule, listen):
            part.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(schedule, listen, return_exceptions=True)
        events.info("scheduler stopped", fired=self._scheduler.fired)
        return EXIT_OK

    async def close(self) -> None:
        """End the connections."""
        await self._bell.close()
        await self._link.close()
