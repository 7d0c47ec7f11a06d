"""Claiming ahead: half of the slots at a time, so that the next claim is under way while handlers run.

A claim that fills all slots leaves the worker nothing to do until it returns, and the database nothing
while the handlers run. In halves the two go on side by side, at the price of twice as many claims. That pays where this
process is what the tasks wait for, which is where it is busy most of the time: its own work, and
handlers that use the CPU. It does not pay where the database is slow, or where many workers share
few cores, which then do nothing but claim; there the process mostly waits.
"""

from __future__ import annotations

import time

# With fewer slots a claim costs more than what it could overlap with.
SLOTS_MIN = 100
# Of one core, measured over at least so long.
BUSY_MIN = 0.5
WINDOW_S = 0.25


class Ahead:
    """Whether this worker claims ahead now."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.on = False
        self._since, self._cpu_s = time.monotonic(), time.process_time()

    def most(self) -> int:
        """Give the most tasks that the next claim may bring."""
        if self._slots < SLOTS_MIN:
            return self._slots
        now = time.monotonic()
        if now - self._since >= WINDOW_S:
            cpu_s = time.process_time()
            self.on = cpu_s - self._cpu_s > BUSY_MIN * (now - self._since)
            self._since, self._cpu_s = now, cpu_s
        return -(-self._slots // 2) if self.on else self._slots
