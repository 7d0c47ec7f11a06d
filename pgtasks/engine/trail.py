"""The trail of a cursor: where its lanes stood a moment ago.

Most transactions that enqueue do something else, too, before they commit. What was inserted and claimed
meanwhile lies after their tasks, which appear behind the cursor. A claim that begins where the lanes
stood a second ago finds them at once, and they need not wait for a look from the head.

What such a claim walks beyond its own rows are the dead entries of that second, and tasks that run:
BACK_ROWS at most, so that its cost depends neither on how many tasks a second there are nor on how many
workers. It is for a worker that keeps up. With a backlog every entry counts, and what is late waits its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, TypeAlias

BACK_S = 1.0
BACK_ROWS = 500
_MARKS_MAX = 256

Positions: TypeAlias = Mapping[int, tuple[datetime, int]]


class _Mark(NamedTuple):
    at: float
    rows: int
    lanes: Positions


class Trail:
    """The marks that a cursor left as it went on, oldest first."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque(maxlen=_MARKS_MAX)
        self._rows = 0

    def leave(self, now: float, lanes: Positions, rows: int) -> None:
        """Note at ``now`` (monotonic) where the lanes stood until they went on by about so many rows."""
        self._marks.append(_Mark(now, self._rows, dict(lanes)))
        self._rows += rows

    def back(self, now: float) -> Positions:
        """Give where the lanes stood BACK_S ago, or BACK_ROWS if that is later; nothing if they have not moved."""
        marks = self._marks
        while marks and (now - marks[0].at > BACK_S or self._rows - marks[0].rows > BACK_ROWS):
            marks.popleft()
        return marks[0].lanes if marks else {}
