"""How many more tasks may run here: in all, and per queue."""

from __future__ import annotations

from pgtasks.settings import QueueSlots


class Slots:
    """The free slots of this worker; a slot is free again when its handler has really ended."""

    def __init__(self, concurrency: int, queues: tuple[QueueSlots, ...]) -> None:
        self.total = concurrency
        self.busy = 0
        self._limits = {queue.name: queue.slots for queue in queues}
        self._busy_in = dict.fromkeys(self._limits, 0)

    @property
    def queues(self) -> list[str]:
        """The queues' names, in the order given."""
        return list(self._limits)

    def limit(self, queue: str) -> int | None:
        """Give the queue's own limit, None without one."""
        return self._limits[queue]

    def free(self) -> int:
        """Count the free slots."""
        return self.total - self.busy

    def free_in(self, queue: str) -> int:
        """Count the slots that tasks of this queue may take."""
        limit = self._limits[queue]
        return self.free() if limit is None else min(self.free(), limit - self._busy_in[queue])

    def any_free(self) -> bool:
        """Tell whether a task of at least one queue could start."""
        return any(self.free_in(queue) > 0 for queue in self._limits)

    def full_queues(self) -> set[str]:
        """Name the queues of which no task could start now."""
        return {queue for queue in self._limits if self.free_in(queue) <= 0}

    def take(self, queue: str, count: int) -> None:
        """Occupy slots."""
        self.busy += count
        self._busy_in[queue] += count

    def give_back(self, queue: str, count: int) -> None:
        """Free slots."""
        self.busy -= count
        self._busy_in[queue] -= count
