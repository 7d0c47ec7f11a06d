"""The statements about dead letters: list, count, replay and purge what some filters match."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql

REASONS = ("exhausted", "permanent", "worker_lost")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which dead letters are meant; unset ones stay None and match all."""

    queue: str | None = None
    name: str | None = None
    reason: str | None = None
    since: datetime | None = None
    before_time: datetime | None = None
    ids: tuple[int, ...] | None = None

    def params(self) -> dict[str, Any]:
        """Give them as the parameters of every statement here."""
        return {
            "queue": self.queue,
            "name": self.name,
            "reason": self.reason,
            "since": self.since,
            "before_time": self.before_time,
            "ids": None if self.ids is None else list(self.ids),
        }


class DeadLetterRow(NamedTuple):
    """A dead letter in a list; the error is cut at 1,000 characters."""

    id: int
    queue: str
    name: str
    reason: str
    attempt: int
    max_attempts: int | None
    created_at: datetime
    finished_at: datetime
    error_class: str | None
    error: str | None
    worker_id: UUID | None


class TallyRow(NamedTuple):
    """How many dead letters of a kind there are, and how many a living task's key holds back."""

    queue: str
    name: str
    reason: str
    dead_letters: int
    taken: int


class Replayed(NamedTuple):
    """One batch of a replay; ``last_id`` None means that none was left."""

    last_id: int | None
    picked: int
    replayed: list[int]
    taken: list[int]


class Purged(NamedTuple):
    """One batch of a purge; ``last_id`` None means that none was left."""

    last_id: int | None
    picked: int
    purged: list[int]


def letters(filters: Filters, *, limit: int) -> Statement[DeadLetterRow]:
    """List dead letters, the latest first."""
    return Statement(sql("dead_letters_list"), {**filters.params(), "limit": limit}, DeadLetterRow)


def tally(filters: Filters, *, limit: int | None) -> Statement[TallyRow]:
    """Count dead letters by queue, name and reason."""
    return Statement(sql("dead_letters_tally"), {**filters.params(), "limit": limit}, TallyRow)


def replay(filters: Filters, *, after: int, limit: int) -> Statement[Replayed]:
    """Move up to ``limit`` dead letters with ids above ``after`` back into the queue."""
    return Statement(sql("dead_letters_replay"), {**filters.params(), "after": after, "limit": limit}, Replayed)


def purge(filters: Filters, *, after: int, limit: int) -> Statement[Purged]:
    """Delete up to ``limit`` dead letters with ids above ``after``."""
    return Statement(sql("dead_letters_purge"), {**filters.params(), "after": after, "limit": limit}, Purged)
