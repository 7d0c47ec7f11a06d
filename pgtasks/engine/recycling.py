"""Recycling: a worker starts afresh when handlers that cannot be ended take too much of it.

Python can end no thread from outside, and no handler that blocks its loop. Such handlers keep
their slots until they end, if they ever do; only a new process is free of them. A worker
recycles itself when

- as many handlers are stuck as ``stuck_max`` says, or all the slots that a queue has of its own;
- or the handlers' loop was given up (``blockage``).

It stops as after SIGTERM: it claims no more, the others get the grace time, what is left is
released uncharged. Then a worker that stands alone turns into a new one (``rebirth``): the same
process id, command line, environment and working directory, so that no init system or terminal
notices. One that a supervisor started exits with EXIT_RECYCLE and is started again.

What makes sure that this does no harm:

- A task that sticks is charged each time, so its ``max_attempts`` bounds how often it causes this.
- A worker lives RECYCLE_S_LEAST at least before it is replaced. Stuck slots wait for that while
  the others work; where the loop was given up, the worker claims no more at once and waits at
  the end.
- A database that is away is waited for: a worker finds it there when it starts again, or ends.
- Nothing else is waited for longer than the grace time: an outcome that is refused, or behind
  somebody's lock, is left to the sweep, because a worker that waits for it does no work.
- A signal ends a worker that is recycling as it ends any other, also while it turns into the
  new one.
- A drain is not recycled: its end says what stays behind.
"""

from __future__ import annotations

import os
import time

from pgtasks import events
from pgtasks.engine.departure import StopSwitch
from pgtasks.engine.executor import Executor
from pgtasks.settings import STUCK_ADVICE

RECYCLE_S_LEAST = 10.0


class Recycling:
    """Decides when its worker recycles itself; ``stuck_max`` 0 is never."""

    def __init__(self, executor: Executor, switch: StopSwitch, stuck_max: int) -> None:
        self._executor, self._switch, self._stuck_max = executor, switch, stuck_max
        self._not_before = time.monotonic() + RECYCLE_S_LEAST

    async def watch(self) -> float:
        """Do one round of the executor's watchdog, and begin to recycle when it is time."""
        delay_s = await self._executor.watch()
        reason = None if self._switch.asked.is_set() or not self._stuck_max else self._reason()
        if reason is not None:
            stuck = self._executor.stuck
            events.warning("worker recycling", reason=reason, stuck=stuck, pid=os.getpid(), advice=STUCK_ADVICE)
            self._switch.recycle(not_before=self._not_before)
        return delay_s

    def _reason(self) -> str | None:
        if self._executor.gave_up_loop:
            return "a handler blocks the handlers' loop"
        if not self._executor.stuck or time.monotonic() < self._not_before:
            return None
        if self._executor.stuck >= self._stuck_max:
            return f"too many stuck slots: stuck_max is {self._stuck_max}"
        full = self._executor.stuck_queues()
        return f"all slots of queue {full[0]} are stuck" if full else None
