"""The statement behind `tasks explain`: what decides when one task runs."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql

# How many rows before a task are looked at; with more of them the counts are least values.
SCAN_ROWS = 20_000


class ExplainRow(NamedTuple):
    """A living task and its surroundings.

    ``serving`` counts the live workers of its queue, ``able`` those of them that know its name;
    ``slots`` and ``busy`` are theirs. Of those that claim, ``ready`` have nothing that keeps them
    from it, ``queue_full`` no slot for its queue (of ``queue_slots``) and ``childless`` no child
    process (of ``children``); ``silent`` have not said such limits. ``known_in_queues`` are the
    queues of live workers that know the name and do not serve its queue. ``higher`` and
    ``earlier`` count what is due before it; ``…_is_least`` says that not everything was looked at.
    """

    now: datetime
    state: str
    due_in_s: float
    attempt: int
    losses: int
    claimed_at: datetime | None
    cancel_requested_at: datetime | None
    unique_key: str | None
    paused_at: datetime | None
    registered: bool
    serving: int
    able: int
    draining: int
    slots: int
    busy: int
    ready: int
    silent: int
    queue_full: int
    queue_slots: int
    childless: int
    children: int
    known_in_queues: list[str]
    lease_expires_at: datetime | None
    worker: str | None
    worker_seen_at: datetime | None
    locked_by: int | None
    higher: int
    higher_is_least: bool
    earlier: int
    earlier_is_least: bool


class KeyRow(NamedTuple):
    """The living task that has a unique key."""

    id: int
    status: str


def explain(id: int) -> Statement[ExplainRow]:
    """Read what decides when a living task runs."""
    return Statement(sql("tasks_explain"), {"id": id, "scan": SCAN_ROWS}, ExplainRow)


def living(unique_key: str) -> Statement[KeyRow]:
    """Find the living task that has a unique key."""
    return Statement(sql("tasks_find"), {"unique_key": unique_key}, KeyRow)
