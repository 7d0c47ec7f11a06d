"""Rivals in turns with us: what a scenario that drains adds to each of its rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg

from bench.database import Bench
from bench.report import Budget, Figures, Key, progress
from bench.rivals import RIVALS, run
from bench.rivals.rival import Rival, Unavailable

_US = 1e6
# What one rival may fail with and leave the others, and our own figures, as they are.
_FAILURES = (Unavailable, AssertionError, psycopg.Error, OSError)


def keys(rivals: Sequence[str], budgets: Mapping[str, Budget]) -> list[Key]:
    """Give the figures of these rivals: ratios first, for it is they that travel."""
    ratios = [Key(f"ratio_to.{name}", f"our rate against {_title(name)}'s", 2, budgets.get(name)) for name in rivals]
    costs = [
        key
        for name in rivals
        for key in (
            Key(f"rival.{name}.rate", f"{_title(name)}: tasks per second, first handler to last acknowledgement"),
            Key(f"rival.{name}.worker_cpu_us_per_task", "CPU of its worker processes", 1),
            Key(f"rival.{name}.backend_cpu_us_per_task", "CPU of its server processes", 1),
            Key(f"rival.{name}.wal_bytes_per_task", "WAL, from claim to acknowledgement"),
            Key(f"rival.{name}.commits_per_task", "transactions", 4),
        )
    ]
    return [*ratios, *costs]


def facts(name: str) -> dict[str, Any]:
    """Say what is measured under this name, and how it was configured."""
    rival = RIVALS[name]
    return {
        "title": rival.title,
        "packages": list(rival.packages),
        "settings": rival.settings,
        "sources": list(rival.sources),
        "keeps": rival.keeps,
    }


class Field:
    """The rivals of a run, of which those that cannot run here are left out and named in `missing`."""

    def __init__(self, bench: Bench, names: Sequence[str], missing: list[str]) -> None:
        self._bench, self._missing = bench, missing
        self._names = list(names)
        self._rounds = 0
        for name in names:
            self._install(name)

    def round(self, tasks: int, seconds: float) -> Figures:
        """Measure each one over a backlog of so many tasks, for so many seconds at most."""

        def measured(rival: Rival) -> Figures:
            done, name = run.run(rival, self._bench, tasks, seconds, may_run_dry=True), rival.name
            progress(f"  {name}: {done.rate:,.0f} tasks/s")
            return {
                f"rival.{name}.rate": done.rate,
                f"rival.{name}.worker_cpu_us_per_task": _per_task(done.cpu_s, done.tasks_in_all, _US),
                f"rival.{name}.backend_cpu_us_per_task": _per_task(done.backend_cpu_s, done.tasks_in_all, _US),
                f"rival.{name}.wal_bytes_per_task": _per_task(done.wal_bytes, done.tasks_in_all),
                f"rival.{name}.commits_per_task": _per_task(done.commits, done.tasks_in_all),
            }

        return self.each(measured)

    def each(self, measured: Callable[[Rival], Figures]) -> Figures:
        """Give the figures of each one; one that fails is left out from then on.

        The order turns around each time: none always runs right after us, and none always last.
        """
        figures: Figures = {}
        self._rounds += 1
        for name in self._names[:: 1 if self._rounds % 2 else -1]:
            try:
                figures |= measured(RIVALS[name])
            except _FAILURES as error:
                self._leave_out(name, error)
        return figures

    def _install(self, name: str) -> None:
        try:
            RIVALS[name].install()
        except _FAILURES as error:
            self._leave_out(name, error)

    def _leave_out(self, name: str, error: Exception) -> None:
        line = f"{name}: {' '.join(str(error).split())}"
        progress(f"bench: left out from here on: {line}")
        self._missing.append(line)
        self._names.remove(name)


def ratios(theirs: Figures, ours: float | None, figure: str = "ratio_to") -> Figures:
    """Give our rate against each of theirs in a round."""
    return {
        f"{figure}.{name.split('.')[1]}": ours / rate
        for name, rate in theirs.items()
        if name.endswith(".rate") and ours and rate
    }


def _title(name: str) -> str:
    return RIVALS[name].title


def _per_task(amount: float | None, tasks: int, unit: float = 1.0) -> float | None:
    return None if amount is None else amount / tasks * unit
