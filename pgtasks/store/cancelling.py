"""The statements that cancel the tasks which some filters match: in stretches, by id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql

# How many rows one statement looks at, whatever it finds.
SCAN_ROWS = 100_000
STATUSES = ("scheduled", "queued", "retrying", "running")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which live tasks are meant; without a status all waiting ones, never running ones."""

    queue: str | None = None
    name: str | None = None
    status: str | None = None

    def params(self) -> dict[str, Any]:
        """Give them as the parameters of the statements here."""
        is_running = self.status == "running"
        return {"queue": self.queue, "name": self.name, "status": self.status, "is_running": is_running}


class Cancelled(NamedTuple):
    """One batch; ``last_id`` None means that none was left. What matched and was not done is held by somebody."""

    last_id: int | None
    matched: int
    cancelled: int
    requested: int


class TallyRow(NamedTuple):
    """How many tasks of a kind match in a stretch that ends with ``last_id``; queue None for none."""

    queue: str | None
    name: str | None
    status: str | None
    tasks: int
    last_id: int


def newest() -> Statement[tuple[int]]:
    """Give the highest id of the live tasks."""
    return Statement(sql("tasks_newest"))


def cancel(filters: Filters, *, after: int, until: int, limit: int) -> Statement[Cancelled]:
    """Cancel up to ``limit`` tasks with ids above ``after``, up to ``until``."""
    params = {**filters.params(), "after": after, "until": until, "scan": SCAN_ROWS, "limit": limit}
    return Statement(sql("tasks_cancel_many"), params, Cancelled)


def tally(filters: Filters, *, after: int, until: int) -> Statement[TallyRow]:
    """Count the tasks that match among the next ones with ids above ``after``, up to ``until``."""
    params = {**filters.params(), "after": after, "until": until, "scan": SCAN_ROWS}
    return Statement(sql("tasks_tally"), params, TallyRow)
