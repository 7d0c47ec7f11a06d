"""The worker process: starts every part, wires them, and stops them in the right order.

Stopping. The first SIGTERM, SIGINT or SIGHUP ends claiming; running tasks get the grace time;
what still runs then is stopped and released, no attempt charged; outcomes are flushed; exit 0.
A second signal skips the grace and exits with 130; a third ends the process on the spot.
If the database is away, the flush is tried until the deadline plus a second, and the exit
code is 1: the leases then expire, and other workers run those tasks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
import time
import uuid

from pgtasks import __version__, events
from pgtasks.app import App
from pgtasks.engine.bell import Bell
from pgtasks.engine.claimer import Claimer
from pgtasks.engine.completer import Completer
from pgtasks.engine.executor import Executor
from pgtasks.engine.heartbeat import Heartbeat
from pgtasks.engine.leases import Leases
from pgtasks.engine.maintenance import Sweeper, Tidier
from pgtasks.engine.periodic import repeat, wait_for_any
from pgtasks.engine.slots import Slots
from pgtasks.errors import PgtasksError
from pgtasks.model import WorkerInfo
from pgtasks.settings import QUEUE_DEFAULT, QueueSlots, WorkerSettings
from pgtasks.store import statements
from pgtasks.store.link import Link, ThreadLink

EXIT_OK, EXIT_FAILURE, EXIT_INTERRUPTED = 0, 1, 130
# After the grace time: how long stopped handlers get to end, then how long the flush gets.
STOP_S = 0.4
FLUSH_S = 0.5
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNALS_TO_DIE = 3


def run(app: App, settings: WorkerSettings) -> int:
    """Run a worker until it is stopped; gives the process's exit code.

    Raises DatabaseUnavailable when the database cannot be reached at the start.
    """
    with asyncio.Runner() as runner:
        worker = runner.run(_started(app, settings))
        code = runner.run(worker.work())
        if worker.executor.stuck:
            # A handler that never ends must not keep the process; everything is written.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return code


async def _started(app: App, settings: WorkerSettings) -> Worker:
    worker = Worker(app, settings)
    try:
        await worker.introduce()
    except BaseException:
        await worker.close()
        raise
    return worker


class Worker:
    """One worker process."""

    def __init__(self, app: App, settings: WorkerSettings) -> None:
        queues = settings.queues or _queues_of(app)
        dsn = settings.dsn or app.dsn
        rng = random.Random()
        self._app, self._settings, self._rng = app, settings, rng
        self.info = WorkerInfo(
            id=uuid.uuid4(),
            name=f"{socket.gethostname()}:{os.getpid()}",
            queues=tuple(queue.name for queue in queues),
            names=tuple(sorted(app.handlers)),
            slots=settings.concurrency,
            lease_s=settings.lease_s,
            version=__version__,
        )
        tag = self.info.id.hex[:12]
        self._claim_link = Link(dsn, "claim", worker=tag, pooler=settings.pooler)
        self._finish_link = Link(dsn, "finish", worker=tag, pooler=settings.pooler)
        self._stop_claiming = asyncio.Event()
        self._stop_all = asyncio.Event()
        self._signals = 0
        self._signalled = asyncio.Event()
        slots = Slots(settings.concurrency, queues)
        leases = Leases(settings.lease_s)
        self._completer = Completer(self._finish_link, self.info.id, leases, settings.concurrency // 2)
        self.executor = Executor(app, slots, leases, self._completer.add)
        self._heartbeat = Heartbeat(
            ThreadLink(dsn, "heartbeat", worker=tag, pooler=settings.pooler),
            self.info,
            leases,
            self.executor,
            random.Random(),
        )
        self._bell = Bell(
            dsn,
            list(self.info.queues),
            worker=tag,
            hears=settings.pooler == "none",
            on_cancel=self.executor.cancel,
        )
        self._claimer = Claimer(
            self._claim_link,
            self._bell,
            settings=settings,
            worker_id=self.info.id,
            names=list(self.info.names),
            slots=slots,
            leases=leases,
            executor=self.executor,
            completer=self._completer,
            stop=self._stop_claiming,
            rng=rng,
        )
        self._sweeper = Sweeper(self._finish_link, self._heartbeat.window, settings.sweep_interval_s, rng)
        self._tidier = Tidier(self._finish_link, rng)

    async def introduce(self) -> None:
        """Tell the database who we are and what we can run; raises DatabaseUnavailable."""
        await self._finish_link.fetch_all(
            statements.upsert_types([handler.as_type() for handler in self._app.handlers.values()])
        )
        await self._finish_link.fetch_all(statements.register(self.info))
        await self._tidier.tidy()

    async def work(self) -> int:
        """Work until stopped; gives the exit code."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        self._heartbeat.start()
        parts = [
            asyncio.create_task(repeat(name, do_round, stop=stop, rng=self._rng, wake=wake))
            for name, do_round, stop, wake in (
                ("claim", self._claimer.round, self._stop_claiming, None),
                ("listen", self._bell.keep_session, self._stop_all, self._bell.lost),
                ("finish", self._completer.flush, self._stop_all, self._completer.arrived),
                ("watch", self.executor.watch, self._stop_all, None),
                ("sweep", self._sweeper.sweep, self._stop_claiming, None),
                ("tidy", self._tidier.tidy_later, self._stop_claiming, None),
            )
        ]
        events.info(
            "worker started",
            worker=self.info.id,
            name=self.info.name,
            queues=",".join(self.info.queues),
            tasks=len(self.info.names),
            concurrency=self.info.slots,
            lease_s=self.info.lease_s,
        )
        try:
            await self._test_hearing()
            await self._stop_claiming.wait()
            return await self._wind_down(parts[0])
        finally:
            self._stop_all.set()
            await asyncio.wait(parts, timeout=0.2)
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await self.close()

    async def _test_hearing(self) -> None:
        """Find out whether notifications arrive, as they do not behind a transaction pooler."""
        if self._settings.pooler != "none":
            return
        while not self._bell.hears and not self._stop_claiming.is_set():
            await wait_for_any(0.05, self._stop_claiming)
        if not self._stop_claiming.is_set():
            with contextlib.suppress(PgtasksError):
                await self._bell.test(lambda channel: self._finish_link.fetch_all(statements.notify(channel)))

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        events.info("signal received", signal=signal.Signals(number).name, count=self._signals)
        if self._signals >= _SIGNALS_TO_DIE:
            os._exit(EXIT_INTERRUPTED)
        self._signalled.set()
        self._stop_claiming.set()

    async def _wind_down(self, claiming: asyncio.Task[None]) -> int:
        """Drain, stop what is left, flush; gives the exit code."""
        began = time.monotonic()
        grace_s = 0.0 if self._signals > 1 else self._settings.shutdown_grace_s
        events.info("worker stopping", running=self.executor.running, grace_s=grace_s)
        self._heartbeat.draining = True
        # A claim under way may still bring tasks; they count as running.
        await asyncio.wait({claiming}, timeout=min(grace_s, 5.0) if grace_s else 0.5)
        await self._wait_while_running(grace_s, interruptible=True)
        interrupted = self._signals > 1
        if self.executor.running:
            self.executor.stop_all()
            await self._wait_while_running(STOP_S, interruptible=False)
        self.executor.abandon_all()
        await self._flush(max(FLUSH_S, began + grace_s - time.monotonic()))
        left = self._completer.backlog
        await self._leave()
        events.info(
            "worker stopped", seconds=round(time.monotonic() - began, 2), unwritten=left, stuck=self.executor.stuck
        )
        if interrupted:
            return EXIT_INTERRUPTED
        return EXIT_FAILURE if left else EXIT_OK

    async def _wait_while_running(self, limit_s: float, *, interruptible: bool) -> None:
        until = time.monotonic() + limit_s
        while self.executor.running and time.monotonic() < until:
            if interruptible and self._signals > 1:
                return
            await asyncio.sleep(min(0.02, limit_s))

    async def _flush(self, limit_s: float) -> None:
        """Wait until every outcome is written, for a bounded time."""
        self._completer.hurry = True
        self._completer.arrived.set()
        until = time.monotonic() + limit_s
        while self._completer.backlog and time.monotonic() < until and self._signals <= 1:
            await asyncio.sleep(0.01)
        if self._completer.backlog:
            until = time.monotonic() + FLUSH_S
            while self._completer.backlog and time.monotonic() < until:
                await asyncio.sleep(0.01)

    async def _leave(self) -> None:
        """Take this worker off the list, if the database is there."""
        self._heartbeat.stop()
        with contextlib.suppress(PgtasksError):
            await self._finish_link.fetch_all(statements.remove_worker(self.info.id), deadline_s=0.5)

    async def close(self) -> None:
        """End the threads and connections of all parts."""
        self._heartbeat.stop()
        self.executor.close()
        await self._bell.close()
        await self._claim_link.close()
        await self._finish_link.close()


def _queues_of(app: App) -> tuple[QueueSlots, ...]:
    """Give the queues a worker serves when none is named: the default one and its handlers'."""
    names = dict.fromkeys([QUEUE_DEFAULT, *(handler.queue for handler in app.handlers.values())])
    return tuple(QueueSlots(name) for name in names)
