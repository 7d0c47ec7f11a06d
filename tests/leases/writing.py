"""A completer at work, without the rest of a worker."""

import asyncio
import random
import time
import types
from collections.abc import Callable, Sequence
from typing import Self

from pgtasks import App
from pgtasks.engine.attempt import Attempt
from pgtasks.engine.completer import Completer
from pgtasks.engine.leases import Leases
from pgtasks.engine.outgoing import BYTES_MAX
from pgtasks.engine.periodic import Signal, repeat
from pgtasks.model import Claimed
from pgtasks.outcome import Outcome
from pgtasks.store import statements
from pgtasks.store.link import Link
from tests.database import DEADLINE_S, Connection
from tests.leases import steps


class Writer:
    """An async context manager that runs a completer's rounds as a worker does."""

    def __init__(
        self, dsn: str, connection: Connection, *, deadline_s: float = 5.0, bytes_max: int = BYTES_MAX
    ) -> None:
        app = App()

        @app.task(name=steps.NAME)
        async def job() -> None: ...

        self._handler = app.handlers[steps.NAME]
        self._connection = connection
        self.worker_id = steps.worker_id()
        self.leases = Leases(steps.LEASE_S)
        self.link = Link(dsn, "finish", worker="test", deadline_s=deadline_s)
        self.completer = Completer(self.link, self.worker_id, self.leases, 100, bytes_max=bytes_max)
        self.failures = 0
        self._stop = Signal()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(
            repeat(
                "finish",
                self._flush,
                stop=self._stop,
                rng=random.Random(1),
                wake=self.completer.arrived,
                delay_s_max=0.2,
            )
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self._stop.set()
        self.completer.arrived.set()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        await self.link.close()

    async def _flush(self) -> float:
        try:
            return await self.completer.flush()
        except Exception:
            self.failures += 1
            raise

    def claim(self, count: int) -> list[Claimed]:
        """Claim tasks and note their lease."""
        tasks = steps.claim(self._connection, self.worker_id, count)
        self.leases.add(tasks[0].lease_id, len(tasks), time.monotonic())
        return tasks

    def offer(self, outcomes: Sequence[tuple[Claimed, Outcome]]) -> None:
        """Hand outcomes to the completer."""
        now = time.monotonic()
        self.completer.add([(Attempt(task, self._handler, "default", now), outcome) for task, outcome in outcomes])

    async def connect(self) -> None:
        """Open the completer's connection, so that the next request on it is a batch."""
        await self.link.fetch_one(statements.clock())

    async def until(self, condition: Callable[[], object], timeout_s: float = DEADLINE_S) -> None:
        """Wait until a condition holds."""
        until = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < until, f"backlog {self.completer.backlog}, failures {self.failures}"
            await asyncio.sleep(0.01)

    async def until_written(self, timeout_s: float = DEADLINE_S) -> None:
        """Wait until nothing is left to write."""
        await self.until(lambda: self.completer.backlog == 0, timeout_s)
