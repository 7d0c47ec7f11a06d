"""The trail of a cursor: where its lanes stood a moment ago, and how often to claim from there.

Most transactions that enqueue do something else, too, before they commit. What was inserted and claimed
meanwhile lies after their tasks, which appear behind the cursor. A claim that begins where the lanes
stood a second ago finds them, and they need not wait for a look from the head.

Beside its own rows such a claim walks what has passed in that second: dead entries, tasks that run, tasks of others.
How many that are, nobody knows beforehand: it depends on other workers, and on whether an old snapshot
keeps what is dead. So to look back is paced by what it takes: the average beyond claims that do not gets
FRACTION of the time. Where that is next to nothing, all claims look back but one in eight, which shows what
a claim takes that does not. It is for a worker that keeps up: with a backlog what is late waits its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, TypeAlias

BACK_S = 1.0
FRACTION = 0.02
IN_A_ROW_MAX = 7
# Moves this close together are one mark.
MARK_S = 0.01
_WEIGHT = 1 / 16

Positions: TypeAlias = Mapping[int, tuple[datetime, int]]


class _Mark(NamedTuple):
    at: float
    stood: dict[int, tuple[datetime, int]]


class Trail:
    """The marks that a cursor left as it went on, oldest first; times are monotonic."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()
        self._cost_s = 0.0
        self._looked_at = float("-inf")
        # The first claim shows what others are compared with.
        self._in_a_row = IN_A_ROW_MAX

    def leave(self, now: float, stood: Positions) -> None:
        """Note where the lanes stood that go on at ``now``."""
        self._forget(now)
        if not stood:
            return
        if not self._marks or now - self._marks[-1].at >= MARK_S:
            self._marks.append(_Mark(now, {}))
        mark = self._marks[-1].stood
        for priority, position in stood.items():
            mark[priority] = min(mark.get(priority, position), position)

    def back(self, now: float) -> Positions:
        """Give the furthest back that each lane stood within BACK_S, of those that have moved since."""
        self._forget(now)
        found: dict[int, tuple[datetime, int]] = {}
        for mark in self._marks:
            for priority, position in mark.stood.items():
                found[priority] = min(found.get(priority, position), position)
        return found

    def _forget(self, now: float) -> None:
        while self._marks and now - self._marks[0].at > BACK_S:
            self._marks.popleft()

    def is_due(self, now: float) -> bool:
        """Tell whether a claim may look back."""
        self._forget(now)
        in_time = now - self._looked_at >= self._cost_s / FRACTION
        return in_time and self._in_a_row < IN_A_ROW_MAX and bool(self._marks)

    def looked(self, ended: float, cost_s: float) -> None:
        """Note a claim that looked back, and what it took beyond one that does not (seconds, also below 0)."""
        self._cost_s = max(0.0, self._cost_s + (cost_s - self._cost_s) * _WEIGHT)
        self._looked_at = ended
        self._in_a_row += 1

    def went_on(self) -> None:
        """Note a claim that did not look back."""
        self._in_a_row = 0
