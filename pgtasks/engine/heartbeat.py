"""Heartbeats: leases renewed from a thread of its own, and when sweeping is safe.

The thread has its own connection, so that neither a blocked handler nor a slow claim stops it.
Each beat is one statement for the whole worker. Its answer goes to the engine's loop.

When every lease looks expired
------------------------------
After a stall of the whole database (a crash and restart, a lock, a frozen host) the leases of
all workers have expired although their holders live. Whoever sweeps first would take them.
Two rules, both on the database's clock, prevent it:

1. A sweep says until when it may run: 1.5 beat intervals after this worker's own last beat. A
   sweep that was sent before or in the stall is executed after it, finds itself too late, and
   takes nothing.
2. When two beats in a row lie more than two intervals apart, this worker was cut off or the
   database stalled. It then does not sweep for one more interval, in which the other
   workers, whose beats were waiting too, renew. A worker that has just started does the same.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from pgtasks import events
from pgtasks.engine.executor import Executor
from pgtasks.engine.leases import Leases
from pgtasks.engine.periodic import Backoff
from pgtasks.errors import PgtasksError
from pgtasks.model import WorkerInfo
from pgtasks.store import statements
from pgtasks.store.link import ThreadLink
from pgtasks.store.statements import Beat


class SweepWindow:
    """Says until when a sweep may run, by the database's clock (see the module)."""

    def __init__(self, interval_s: float) -> None:
        self._interval = timedelta(seconds=interval_s)
        self._last: datetime | None = None
        self._closed_until: datetime | None = None

    def beat(self, now: datetime) -> None:
        """Note a beat that the database took at ``now``."""
        if self._last is None or now - self._last > 2 * self._interval or now < self._last:
            self._closed_until = now + self._interval
        self._last = now

    def fresh_until(self) -> datetime | None:
        """Give the end of the window, None while it is closed."""
        if self._last is None or self._closed_until is None or self._last < self._closed_until:
            return None
        return self._last + 1.5 * self._interval


class Heartbeat:
    """The heartbeat's thread."""

    def __init__(
        self,
        link: ThreadLink,
        worker: WorkerInfo,
        leases: Leases,
        executor: Executor,
        rng: random.Random,
    ) -> None:
        self._link, self._worker, self._leases, self._executor, self._rng = link, worker, leases, executor, rng
        self.interval_s = worker.lease_s / 3
        self.window = SweepWindow(self.interval_s)
        self.draining = False
        self.beats = 0
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pgtasks-heartbeat", daemon=True)

    def start(self) -> None:
        """Start beating."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more; does not wait for a beat that hangs."""
        self._stop.set()
        self._thread.join(timeout=0.5)
        if not self._thread.is_alive():
            self._link.close()

    def _run(self) -> None:
        backoff = Backoff(self._rng)
        while not self._stop.is_set():
            try:
                self._beat()
            except Exception as error:  # noqa: BLE001 - a heartbeat that ends would cost every lease
                delay_s = min(backoff.next_s(), self.interval_s / 4)
                if backoff.failures == 1 or not isinstance(error, PgtasksError):
                    events.warning("heartbeat failed", error=f"{type(error).__name__}: {error}".splitlines()[0])
            else:
                if backoff.failures:
                    events.info("heartbeat recovered", failures=backoff.failures)
                    backoff.reset()
                delay_s = self.interval_s * (0.9 + 0.1 * self._rng.random())
            self._stop.wait(delay_s)

    def _beat(self) -> None:
        lease_ids = self._leases.ids()
        sent_at = time.monotonic()
        beat = self._link.fetch_one(
            statements.beat(
                self._worker.id,
                lease_s=self._worker.lease_s,
                lease_ids=lease_ids,
                task_ids=self._executor.task_ids(),
                busy=self._executor.running + self._executor.stuck,
                draining=self.draining,
            )
        )
        if beat is None:
            return
        if not beat.registered:
            self._link.fetch_one(statements.register(self._worker))
        self._call(lambda: self._answered(lease_ids, sent_at, beat))

    def _call(self, work: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work)

    def _answered(self, asked: list[int], sent_at: float, beat: Beat) -> None:
        """Take a beat's answer, on the engine's loop."""
        self.beats += 1
        self.window.beat(beat.now)
        gone = self._leases.renewed(asked, beat.kept, sent_at)
        if gone:
            self._executor.lose(gone, "it expired and was swept")
        for task_id in beat.cancelled:
            self._executor.cancel(task_id)
