"""How many tasks a claim asks for: what one reply may hold is bounded in bytes and in time.

A claim names a number of rows, and their payloads may be anything from two bytes to many
mebibytes. A reply that does not fit into the time limits would be asked for again and again,
in vain: no attempt is charged, nothing runs. So the number follows two things per queue.

* The payloads' size: as many as fit into BYTES_TARGET, by the average of the last reply, or
  half of what was expected before if that is more. It starts with LIMIT_FIRST, so that a queue
  of large payloads is met with a small claim, and doubles with every reply of small ones.
* The time: a claim that ran into a time limit is asked for half as many, down to one. Replies
  that are quick again raise that, by an eighth each.

A single payload is not bounded here, and neither are the payloads of all the running tasks
together: those are as many as the concurrency says.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgtasks.model import Claimed

LIMIT_MAX = 1000
LIMIT_FIRST = 32
# In characters of JSON text, which is what arrives.
BYTES_TARGET = 8 * 2**20
# A reply that took longer is no reason to ask for more.
QUICK_S = 1.0


class BatchLimit:
    """The most tasks that the next claim of one queue may bring."""

    def __init__(self) -> None:
        self._size = BYTES_TARGET / LIMIT_FIRST
        self._most = LIMIT_MAX

    @property
    def tasks(self) -> int:
        """The number to ask for, at least one."""
        return max(1, min(self._most, int(BYTES_TARGET / self._size)))

    def answered(self, rows: Sequence[Claimed], took_s: float) -> None:
        """Note a reply that brought tasks."""
        average = sum([len(row.payload) for row in rows]) / len(rows)
        self._size = max(average, self._size / 2, BYTES_TARGET / LIMIT_MAX)
        if self._most < LIMIT_MAX and took_s < QUICK_S:
            self._most = min(LIMIT_MAX, self._most + max(1, self._most // 8))

    def timed_out(self, asked: int) -> None:
        """Note that a claim of so many ran into a time limit."""
        self._most = max(1, min(self._most, asked) // 2)
