"""A running worker as others may see it: numbers that can be read from any thread.

Whoever shows them, or judges by them, is above the engine and is handed in as ``Ops``.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pgtasks.engine.claimer import Claimer
from pgtasks.engine.completer import Completer
from pgtasks.engine.departure import StopSwitch
from pgtasks.engine.executor import Executor
from pgtasks.engine.heartbeat import Heartbeat
from pgtasks.engine.maintenance import Sweeper
from pgtasks.engine.meter import Meter
from pgtasks.engine.slots import Slots
from pgtasks.model import WorkerInfo
from pgtasks.settings import WorkerSettings

# How long a reader waits for a loop that does not answer.
PING_WAIT_S = 0.2


class Signs(NamedTuple):
    """What tells whether a worker is alive: seconds since things went well, and their limits."""

    since_progress_s: float
    since_beat_s: float
    beats: int
    stopping: bool
    lease_s: float
    beat_interval_s: float
    safety_poll_s: float
    # For how long it should have ended; below zero while there is time, minus infinity while it works.
    late_s: float = -math.inf
    # Since a claim round, and a heartbeat, last failed because of the database: infinity when none has.
    since_claim_refused_s: float = math.inf
    since_beat_refused_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Vitals:
    """The parts of a worker that are read; nothing here changes them."""

    info: WorkerInfo
    settings: WorkerSettings
    slots: Slots
    executor: Executor
    claimer: Claimer
    completer: Completer
    sweeper: Sweeper
    heartbeat: Heartbeat
    switch: StopSwitch
    loop: asyncio.AbstractEventLoop

    def signs(self) -> Signs:
        """Give the signs of life."""
        now, due_at = time.monotonic(), self.switch.due_at
        return Signs(
            since_progress_s=now - self.claimer.progress_at,
            since_beat_s=now - self.heartbeat.beat_at,
            beats=self.heartbeat.beats,
            stopping=self.switch.asked.is_set(),
            lease_s=self.info.lease_s,
            beat_interval_s=self.heartbeat.interval_s,
            safety_poll_s=self.settings.safety_poll_s,
            late_s=-math.inf if due_at is None else now - due_at,
            since_claim_refused_s=now - self.claimer.refused_at,
            since_beat_refused_s=now - self.heartbeat.refused_at,
        )

    def slots_by_state(self) -> dict[str, int]:
        """Count the slots: busy ones run a task, stuck ones a handler that ignored its stop."""
        stuck, taken = self.executor.stuck, self.slots.busy
        return {"busy": max(0, taken - stuck), "free": max(0, self.slots.total - taken), "stuck": stuck}


class Ops(Protocol):
    """Who watches a worker."""

    @property
    def meter(self) -> Meter | None:
        """What the worker is to count into, if it is to count."""

    def working(self, vitals: Vitals) -> None:
        """The worker has begun to work."""

    def stopping(self, *, recycles: bool) -> None:
        """The worker drains and ends; one that recycles starts again under the same process id."""


class Ping:
    """Asks an event loop from another thread how long it takes to answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._asking = threading.Lock()
        self._answered = threading.Event()
        self._sent_at: float | None = None
        self._took_s = 0.0

    def lag_s(self) -> float:
        """Give the seconds until it answered, or for which it has not."""
        with self._asking:
            if self._sent_at is None:
                self._answered.clear()
                self._sent_at = time.monotonic()
                try:
                    self.loop.call_soon_threadsafe(self._answer, self._sent_at)
                except RuntimeError:  # It has ended.
                    self._sent_at = None
                    return 0.0
            sent_at = self._sent_at
        if self._answered.wait(PING_WAIT_S):
            return self._took_s
        return time.monotonic() - sent_at

    def _answer(self, sent_at: float) -> None:
        self._took_s = time.monotonic() - sent_at
        self._sent_at = None
        self._answered.set()
