"""An executor without a database: tasks go in, outcomes come out."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from pgtasks import App
from pgtasks.engine.executor import Executor
from pgtasks.engine.leases import Leases
from pgtasks.engine.runners import Finished
from pgtasks.engine.slots import Slots
from pgtasks.model import Claimed
from pgtasks.outcome import Outcome
from pgtasks.settings import QueueSlots

DEADLINE_S = 15.0


class Rig:
    """Starts tasks by their handlers' names, runs the watchdog and keeps the outcomes."""

    def __init__(self, app: App, slots: int = 10, queues: tuple[QueueSlots, ...] = (QueueSlots("default"),)) -> None:
        self.slots = Slots(slots, queues)
        self.executor = Executor(app, self.slots, Leases(30.0), self._take)
        self.outcomes: dict[str, Outcome] = {}

    def _take(self, finished: Finished) -> None:
        self.outcomes.update((attempt.task.name, outcome) for attempt, outcome in finished)

    def start(self, *names: str, queue: str = "default") -> None:
        """Run one task of each name; the task's id is its lease's."""
        for name in names:
            number = abs(hash((name, time.monotonic()))) % 10**9
            row: Any = (number, number, name, "{}", 1, None, None, 0, None, None)
            self.executor.start(queue, [Claimed(*row)])

    async def until(self, condition: Callable[[], object]) -> None:
        """Run the watchdog until the condition holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, self.outcomes
            await asyncio.sleep(min(0.02, await self.executor.watch()))
