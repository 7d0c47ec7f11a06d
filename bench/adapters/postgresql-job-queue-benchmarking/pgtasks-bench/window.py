"""Percentiles of the last seconds, to three significant figures, in memory that does not grow with the rate."""

from __future__ import annotations

import math
from collections import Counter, deque

FIGURES = 3
SMALLEST_MS = 0.001


class Window:
    """Counts values by second and by size; a value of three significant figures is a size of its own."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._slots: deque[tuple[int, Counter[float]]] = deque()

    def add(self, value_ms: float, now: float) -> None:
        """Count a value that was measured now."""
        second = int(now)
        if not self._slots or self._slots[-1][0] != second:
            self._slots.append((second, Counter()))
            self._forget(now)
        self._slots[-1][1][rounded(value_ms)] += 1

    def percentiles(self, *shares: float, now: float) -> list[float] | None:
        """Give the smallest values that these shares of all do not exceed; None when there are none."""
        self._forget(now)
        together: Counter[float] = sum((slot for _, slot in self._slots), Counter())
        total = together.total()
        if not total:
            return None
        found, passed, wanted = [], 0, list(shares)
        for value in sorted(together):
            passed += together[value]
            while wanted and passed >= wanted[0] * total:
                found.append(value)
                wanted.pop(0)
        return found

    def _forget(self, now: float) -> None:
        while self._slots and self._slots[0][0] < now - self._seconds:
            self._slots.popleft()


def rounded(value_ms: float) -> float:
    """Give a value to three significant figures; clocks that are read one after the other never run backwards."""
    value_ms = max(value_ms, SMALLEST_MS)
    return round(value_ms, FIGURES - 1 - math.floor(math.log10(value_ms)))
