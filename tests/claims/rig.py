"""A worker's claiming half inside the test's own event loop: no signals, heartbeats or sweeps.

Every part is the real one, wired as `pgtasks.engine.worker` does; several fit into one test,
with all their state at hand.
"""

import asyncio
import random
import time
import types
import uuid
from collections.abc import Sequence
from typing import Any, Self

from pgtasks import App, Context
from pgtasks.engine.bell import Bell
from pgtasks.engine.claimer import Claimer
from pgtasks.engine.completer import Completer
from pgtasks.engine.executor import Executor
from pgtasks.engine.leases import Leases
from pgtasks.engine.periodic import Signal, repeat
from pgtasks.engine.slots import Slots
from pgtasks.settings import QueueSlots, WorkerSettings
from pgtasks.store import ringing
from pgtasks.store.link import Link
from tests.claims.helpers import until


class Rig:
    """One in-process worker; a context manager. `started` holds when each task began (monotonic)."""

    def __init__(
        self,
        dsn: str,
        *names: str,
        queues: str = "default",
        concurrency: int = 10,
        safety_poll_s: float = 60.0,
        pooler: Any = "none",
        hold_s: float = 0.0,
        isolated: Sequence[str] = (),
        drain: bool = False,
    ) -> None:
        self.id = uuid.uuid4()
        self.started: dict[int, float] = {}
        self.order: list[int] = []
        self.peak = self.running = 0
        self.settings = WorkerSettings(
            dsn=dsn,
            queues=tuple(QueueSlots.parse(queue) for queue in queues.split(",")),
            concurrency=concurrency,
            safety_poll_s=safety_poll_s,
            pooler=pooler,
            drain=drain,
        )
        self._names, self._isolated, self._hold_s = names or ("t",), isolated, hold_s
        self._stop, self._stop_all = Signal(), Signal()
        self.link = Link(dsn, "claim", worker=self.id.hex[:12], pooler=pooler)
        self.finish_link = Link(dsn, "finish", worker=self.id.hex[:12], pooler=pooler)

    def _app(self) -> App:
        app = App()

        async def run(context: Context, **_: Any) -> None:
            self.started[context.task_id] = time.monotonic()
            self.order.append(context.task_id)
            self.running += 1
            self.peak = max(self.peak, self.running)
            if self._hold_s:
                await asyncio.sleep(self._hold_s)
            self.running -= 1

        for name in self._names:
            app.task(name=name)(run)
        return app

    async def __aenter__(self) -> Self:
        settings = self.settings
        slots = Slots(settings.concurrency, settings.queues)
        leases = self.leases = Leases(settings.lease_s)
        self.completer = Completer(self.finish_link, self.id, leases, settings.concurrency // 2)
        self.executor = Executor(self._app(), slots, leases, self.completer.add)
        self.bell = Bell(
            settings.dsn,
            slots.queues,
            worker=self.id.hex[:12],
            wanted=settings.pooler == "none",
            notify=lambda channel: self.finish_link.fetch_all(ringing.notify(channel)),
            on_cancel=self.executor.cancel,
            on_schedules=lambda: None,
        )
        self.claimer = Claimer(
            self.link,
            self.bell,
            settings=settings,
            worker_id=self.id,
            names=[name for name in self._names if name not in self._isolated],
            isolated=self._isolated,
            slots=slots,
            leases=leases,
            executor=self.executor,
            completer=self.completer,
            stop=self._stop,
            rng=random.Random(),
        )
        self._parts = [
            asyncio.create_task(repeat(name, part, stop=stop, rng=random.Random(), wake=wake))
            for name, part, stop, wake in (
                ("claim", self.claimer.round, self._stop, None),
                ("listen", self.bell.keep_session, self._stop_all, self.bell.lost),
                ("finish", self.completer.flush, self._stop_all, self.completer.arrived),
                ("watch", self.executor.watch, self._stop_all, None),
            )
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._stop.set()
        self.executor.stop_all()
        await until(lambda: not self.executor.running, hint="its handlers do not end")
        self._stop_all.set()
        self.completer.arrived.set()
        await asyncio.wait(self._parts, timeout=1.0)
        for part in self._parts:
            part.cancel()
        await asyncio.gather(*self._parts, return_exceptions=True)
        self.executor.close()
        for closing in (self.bell, self.link, self.finish_link):
            await closing.close()

    @property
    def stopping(self) -> bool:
        """Whether it claims no more, as at the end of a drain."""
        return self._stop.is_set()

    async def asleep(self) -> Self:
        """Wait until it sleeps with at least one bell of its own."""
        await until(lambda: self.bell.armed, hint="it did not fall asleep")
        return self

    async def ran(self, count: int, timeout_s: float = 10.0) -> None:
        """Wait until so many tasks have started."""
        await until(
            lambda: len(self.started) >= count, timeout_s, hint=f"{len(self.started)} tasks started, not {count}"
        )
