"""The worker process: starts every part, wires them, and waits for what ends it.

How it stops is in ``departure``. A signal during the start, also while waiting for an answer of
the database, ends it with 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

from pgtasks import __version__, events
from pgtasks.app import App
from pgtasks.engine import forks
from pgtasks.engine.bell import Bell
from pgtasks.engine.children import ChildOptions
from pgtasks.engine.claimer import Claimer
from pgtasks.engine.completer import Completer
from pgtasks.engine.connections import Connections
from pgtasks.engine.departure import EXIT_INTERRUPTED, EXIT_OK, EXIT_RECYCLE, Departure, StopSwitch
from pgtasks.engine.executor import Executor
from pgtasks.engine.heartbeat import Heartbeat
from pgtasks.engine.leases import Leases
from pgtasks.engine.maintenance import Sweeper, Tidier
from pgtasks.engine.periodic import Signal, repeat
from pgtasks.engine.rebirth import SIGNALS
from pgtasks.engine.recycling import Recycling
from pgtasks.engine.retention import Pruner
from pgtasks.engine.scheduler import Scheduler, write_schedules
from pgtasks.engine.slots import Slots
from pgtasks.engine.supervised import Supervision
from pgtasks.engine.vitals import Ops, Vitals
from pgtasks.model import WorkerInfo
from pgtasks.settings import QUEUE_DEFAULT, QueueSlots, WorkerSettings
from pgtasks.store import ringing, statements

NAMES_SHOWN = 20
HEAR_S = 0.01


def run(
    app: App,
    settings: WorkerSettings,
    label: str = "",
    supervision: Supervision | None = None,
    child_command: Sequence[str] = (),
    child_folder: str | None = None,
    ops: Ops | None = None,
    on_recycle: Callable[[], None] = lambda: None,
) -> int:
    """Run a worker until it is stopped; gives the process's exit code.

    ``label`` names the deployment that the app's schedules belong to, as ``MODULE:APP``.
    ``supervision`` is what the worker has from its supervisor, if it has one. ``child_command``
    starts a child process for isolated tasks (``python -m pgtasks.cli.child MODULE:APP``), in
    ``child_folder``, or else in the worker's. ``ops`` watches the worker. ``on_recycle`` is called
    when the worker is to be started again and heeds no signals any more: it has them end the program.

    Raises DatabaseUnavailable when the database cannot be reached at the start, and ConfigError when
    there are isolated tasks and no command for child processes. Must be called in the main thread,
    which is the one that gets signals.
    """
    try:
        return asyncio.run(_run(app, settings, label, supervision, child_command, child_folder, ops, on_recycle))
    finally:
        app.close()


async def _run(
    app: App,
    settings: WorkerSettings,
    label: str,
    supervision: Supervision | None,
    child_command: Sequence[str],
    child_folder: str | None,
    ops: Ops | None,
    on_recycle: Callable[[], None],
) -> int:
    children = ChildOptions(child_command, settings.children, settings.child_max_tasks, child_folder)
    worker_id = supervision.worker_id if supervision else None
    worker = Worker(app, settings, label, worker_id, children if child_command else None, ops)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, worker.on_signal, number)
    if supervision is not None:
        supervision.heed(worker.switch)
    forks.guard(SIGNALS)
    _collect_rarely()
    try:
        if not await worker.introduce():
            return EXIT_INTERRUPTED if worker.interrupted else EXIT_OK
        code = await worker.work()
    finally:
        await worker.close()
    if code == EXIT_RECYCLE:
        await _hand_signals_over(on_recycle)
    # A signal while the parts were closed.
    return EXIT_OK if code == EXIT_RECYCLE and not worker.switch.recycles else code


async def _hand_signals_over(to: Callable[[], None]) -> None:
    """Heed no signals any more; ``to`` sets who does. The loop still takes some time to close."""
    loop = asyncio.get_running_loop()
    to()
    # What came just before is on its way to this loop.
    await asyncio.sleep(HEAR_S)
    for number in SIGNALS:
        loop.remove_signal_handler(number)
    # Removing a handler sets the default.
    to()


def _collect_rarely() -> None:
    """Let Python look for cycles less often, unless the program chose for itself.

    Every task makes some objects that live for milliseconds, and Python's default is to look
    after each 700; that was a third of the worker's CPU in a drain. What the program loaded
    before is left out of later looks.
    """
    if gc.isenabled() and gc.get_threshold() in _COLLECTOR_DEFAULTS:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)


# Of Python 3.11 and 3.12, of 3.13, and of 3.14.
_COLLECTOR_DEFAULTS = {(700, 10, 10), (2000, 10, 10), (2000, 10, 0)}


def leave_within(limit_s: float, code: int) -> None:
    """End this process with a code after a time at most, whatever its threads still do.

    Python waits for threads that a handler started (``asyncio.to_thread``) before it ends.
    Everything is written when this is called, so they must not keep the process.
    """

    def leave() -> None:
        logging.shutdown()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    timer = threading.Timer(limit_s, leave)
    timer.daemon = True
    timer.start()


class Worker:
    """One worker process."""

    def __init__(
        self,
        app: App,
        settings: WorkerSettings,
        label: str = "",
        worker_id: UUID | None = None,
        children: ChildOptions | None = None,
        ops: Ops | None = None,
    ) -> None:
        queues = settings.queues or _queues_of(app)
        rng = random.Random()
        self._app, self._settings, self._label, self._rng, self._ops = app, settings, label, rng, ops
        meter = self._meter = ops.meter if ops is not None else None
        self.info = _info(worker_id or uuid4(), app, settings, queues, children)
        tag = self.info.id.hex[:12]
        links = self._links = Connections(settings.dsn or app.dsn, settings, tag)
        self.switch, self._stop_all = StopSwitch(), Signal()
        self.on_signal = self.switch.on_signal
        self._registering = False
        slots = Slots(settings.concurrency, queues)
        leases = Leases(settings.lease_s)
        self._completer = Completer(links.finish, self.info.id, leases, settings.concurrency // 2)
        deliver = self._completer.add if meter is None else meter.counting(self._completer.add)
        self.executor = Executor(app, slots, leases, deliver, children)
        self._heartbeat = Heartbeat(links.heartbeat, self.info, leases, self.executor, random.Random())
        self._scheduler = Scheduler(links.schedule, rng, lambda: self._bell.hears)
        self._bell = Bell(
            links.listen_dsn,
            list(self.info.queues),
            worker=tag,
            wanted=links.listens,
            notify=lambda channel: links.finish.fetch_all(ringing.notify(channel)),
            on_cancel=self.executor.cancel,
            on_schedules=self._scheduler.changed.set,
            route=links.route,
        )
        self._slots, self._claimer = slots, self._make_claimer(slots, leases)
        self._sweeper = Sweeper(links.finish, self._heartbeat.window, settings.sweep_interval_s, rng)
        self._tidier = Tidier(links.finish, rng)
        self._fires = settings.scheduler and not settings.drain
        self._pruner = Pruner(links.finish, links.schedule if self._fires else links.finish, settings.keep_s, rng)
        self._recycling = Recycling(self.executor, self.switch, 0 if settings.drain else settings.stuck_limit)
        self._departure = Departure(
            self.switch,
            links.finish,
            self.info.id,
            claimer=self._claimer,
            executor=self.executor,
            completer=self._completer,
            heartbeat=self._heartbeat,
            grace_s=settings.shutdown_grace_s,
        )

    def _make_claimer(self, slots: Slots, leases: Leases) -> Claimer:
        names, handlers = self.info.names, self._app.handlers
        return Claimer(
            self._links.claim,
            self._bell,
            settings=self._settings,
            worker_id=self.info.id,
            names=[name for name in names if not handlers[name].isolated],
            isolated=[name for name in names if handlers[name].isolated],
            slots=slots,
            leases=leases,
            executor=self.executor,
            completer=self._completer,
            stop=self.switch.asked,
            rng=self._rng,
            meter=self._meter,
        )

    @property
    def interrupted(self) -> bool:
        """Whether a second signal came: there is no more time."""
        return self.switch.interrupted

    async def introduce(self) -> bool:
        """Tell the database who we are and what we can run; false when a signal came first.

        Raises DatabaseUnavailable.
        """
        introduction = asyncio.create_task(self._introduce())
        signalled = asyncio.create_task(self.switch.asked.wait())
        await asyncio.wait({introduction, signalled}, return_when=asyncio.FIRST_COMPLETED)
        for task in (signalled, introduction):
            task.cancel()
        try:
            await introduction
        except asyncio.CancelledError:
            await self._forget()
            return False
        except Exception:
            await self._forget()
            raise
        return True

    async def _forget(self) -> None:
        """Take this worker off the list again when it was put there and does not start after all."""
        if self._registering:
            await self._departure.sign_off()

    async def _introduce(self) -> None:
        await self._links.finish.fetch_all(
            statements.upsert_types([handler.as_type() for handler in self._app.handlers.values()])
        )
        self._registering = True
        await self._links.finish.fetch_all(statements.register(self.info))
        await write_schedules(self._links.finish, self._app, self._label)
        await self._tidier.tidy()

    async def work(self) -> int:
        """Work until stopped; gives the exit code."""
        self._heartbeat.start()
        parts = [
            asyncio.create_task(repeat(name, do_round, stop=stop, rng=self._rng, wake=wake), name=name)
            for name, do_round, stop, wake in (
                ("claim", self._claimer.round, self.switch.asked, None),
                ("listen", self._bell.keep_session, self._stop_all, self._bell.lost),
                ("finish", self._completer.flush, self._stop_all, self._completer.arrived),
                ("watch", self._recycling.watch, self._stop_all, None),
                ("sweep", self._sweeper.sweep, self.switch.asked, None),
                ("tidy", self._tidier.tidy_later, self.switch.asked, None),
                ("prune", self._pruner.prune, self.switch.asked, None),
                ("schedule", self._scheduler.round, self.switch.asked, self._scheduler.changed),
            )
            if name != "schedule" or self._fires
        ]
        parts.append(asyncio.create_task(self._heartbeat.until_ended(), name="heartbeat"))
        self.executor.warm_up()
        self._say_started()
        if self._ops is not None:
            self._ops.working(self.vitals())
        try:
            whole = await self._wait_for_stop(parts)
            if self._ops is not None:
                self._ops.stopping(recycles=self.switch.recycles)
            return await self._departure.go(parts[0], whole=whole)
        finally:
            self._stop_all.set()
            await asyncio.wait(parts, timeout=0.1)
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    def vitals(self) -> Vitals:
        """Give what others may read of this worker while it runs."""
        return Vitals(
            info=self.info,
            settings=self._settings,
            slots=self._slots,
            executor=self.executor,
            claimer=self._claimer,
            completer=self._completer,
            sweeper=self._sweeper,
            heartbeat=self._heartbeat,
            switch=self.switch,
            loop=asyncio.get_running_loop(),
        )

    def _say_started(self) -> None:
        names = self.info.names
        events.info(
            "worker started",
            worker=self.info.id,
            name=self.info.name,
            queues=",".join(self.info.queues),
            tasks=len(names),
            names=",".join(names[:NAMES_SHOWN]) + (",…" if len(names) > NAMES_SHOWN else ""),
            concurrency=self.info.slots,
            lease_s=self.info.lease_s,
        )
        if not names:
            events.warning("the app has no tasks", advice="import the modules that define them where the app is made")

    async def _wait_for_stop(self, parts: list[asyncio.Task[None]]) -> bool:
        """Wait for the stop; false when it comes because a part of this worker ended by itself.

        A worker without one of its parts would hold its leases, and seem alive, for nothing.
        """
        stopped = asyncio.create_task(self.switch.asked.wait())
        try:
            await asyncio.wait({stopped, *parts}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if self.switch.asked.is_set():
            return True
        for part in parts:
            if part.done():
                error = None if part.cancelled() else part.exception()
                facts = {"part": part.get_name(), "error": type(error or asyncio.CancelledError()).__name__}
                events.LOGGER.error("part ended", exc_info=error, extra={"pgtasks": facts})
        self.switch.asked.set()
        return False

    async def close(self) -> None:
        """End the threads and connections of all parts."""
        self._heartbeat.stop()
        self.executor.close()
        await self._bell.close()
        await self._links.close()


def _info(
    id: UUID, app: App, settings: WorkerSettings, queues: tuple[QueueSlots, ...], children: ChildOptions | None
) -> WorkerInfo:
    return WorkerInfo(
        id=id,
        name=f"{socket.gethostname()}:{os.getpid()}",
        queues=tuple(queue.name for queue in queues),
        names=tuple(sorted(app.handlers)),
        slots=settings.concurrency,
        lease_s=settings.lease_s,
        version=__version__,
        queue_slots=tuple(queue.slots for queue in queues),
        children=None if children is None else children.children,
        isolated=tuple(sorted(name for name, handler in app.handlers.items() if handler.isolated)),
    )


def _queues_of(app: App) -> tuple[QueueSlots, ...]:
    """Give the queues a worker serves when none is named: the default one and its handlers'."""
    names = dict.fromkeys([QUEUE_DEFAULT, *(handler.queue for handler in app.handlers.values())])
    return tuple(QueueSlots(name) for name in names)
