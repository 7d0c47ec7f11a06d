"""What a handler can learn about the task it runs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pgtasks.errors import LeaseLost
from pgtasks.model import Claimed

_logger = logging.getLogger("pgtasks.task")
_MAKING = threading.Lock()
# The task that runs here, so that what its code logs can be told apart; None outside of one.
RUNNING: ContextVar[Claimed | None] = ContextVar("pgtasks_task", default=None)


class TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines carry the task's id, name and attempt."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the task's fields to a record's extra values."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


@dataclass(slots=True, weakref_slot=True)
class Context:
    """The running attempt, for a handler that has a parameter annotated with this class.

    ``lease_id`` is a fencing token: it grows with every claim, so a store that remembers the
    highest one seen can refuse a worker that was paused past its lease. ``deadline`` is on
    ``time.monotonic``'s clock; None without a timeout.
    """

    task_id: int
    name: str
    queue: str
    attempt: int
    max_attempts: int
    lease_id: int
    run_at: datetime | None
    deadline: float | None
    headers: Mapping[str, Any] = field(default_factory=dict)
    _stopped: bool = False
    # Made when somebody waits for it, which few handlers do; it would be half the cost of a context.
    _stop: threading.Event | None = field(default=None, repr=False)
    _lease_lost: bool = False
    _told: bool = False

    @property
    def is_last_attempt(self) -> bool:
        """Tell whether a failure now makes the task a dead letter."""
        return self.attempt >= self.max_attempts

    @property
    def cancelled(self) -> bool:
        """Tell whether the handler should stop: cancelled, timed out, lease lost or shutting down.

        A handler that was told so and then returns has stopped: its task ends as the reason for
        the stop says, not as completed.
        """
        if self._stopped:
            self._told = True
        return self._told

    @property
    def lease_lost(self) -> bool:
        """Tell whether the lease ended; whatever the handler still does is not recorded."""
        return self._lease_lost

    @property
    def schedule(self) -> str | None:
        """The name of the cron schedule that enqueued the task, None for any other task."""
        found = self.headers.get("pgtasks.schedule")
        return found if isinstance(found, str) else None

    @property
    def fire_time(self) -> datetime | None:
        """The slot of the schedule that this task stands for, in UTC; it may have started later."""
        found = self.headers.get("pgtasks.fire_time")
        try:
            slot = datetime.fromisoformat(found) if isinstance(found, str) else None
            return None if slot is None or slot.tzinfo is None else slot.astimezone(UTC)
        except (ValueError, OverflowError):
            # Whoever enqueues may write headers.
            return None

    def remaining_s(self) -> float | None:
        """Give the seconds left until the timeout, None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def wait_cancelled(self, timeout_s: float) -> bool:
        """Sleep in a ``def`` handler, waking early when it should stop; tells whether it should."""
        with _MAKING:
            stop = self._stop = self._stop or threading.Event()
        # Looked at after the event is there for the engine to see, which says it the other way around.
        if not self._stopped:
            stop.wait(timeout_s)
        return self.cancelled

    def raise_if_cancelled(self) -> None:
        """Raise CancelledError when the handler should stop: the task ends as the reason for it says.

        It is cancelled, or has timed out, or is given back uncharged because its worker stops. When
        the lease ended, it is LeaseLost that is raised.
        """
        if self.cancelled:
            self.raise_if_lease_lost()
            raise asyncio.CancelledError(f"task {self.task_id} (attempt {self.attempt}) was told to stop")

    def raise_if_lease_lost(self) -> None:
        """Raise LeaseLost when the lease ended."""
        if self._lease_lost:
            raise LeaseLost(f"the lease of task {self.task_id} (attempt {self.attempt}) ended")

    @property
    def was_told_to_stop(self) -> bool:
        """Tell whether the handler has asked, and was told to stop; asking here tells it nothing."""
        return self._told

    def _stop_for(self, *, lease_lost: bool) -> None:
        """Tell the handler to stop; the engine's side of ``cancelled`` and ``lease_lost``."""
        self._lease_lost = self._lease_lost or lease_lost
        self._stopped = True
        if self._stop is not None:
            self._stop.set()

    @property
    def logger(self) -> TaskLogger:
        """A logger whose lines carry this task's id, name and attempt."""
        return TaskLogger(_logger, {"task_id": self.task_id, "task": self.name, "attempt": self.attempt})

    @classmethod
    def detached(cls, name: str) -> Context:
        """Make the context of a plain call, outside any worker: task 0, first and last attempt."""
        return cls(task_id=0, name=name, queue="", attempt=1, max_attempts=1, lease_id=0, run_at=None, deadline=None)
