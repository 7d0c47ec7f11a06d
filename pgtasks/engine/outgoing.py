"""Batches of outcomes: one statement each, bounded by rows and by bytes.

What a statement carries and what it makes the server move (results, tracebacks, payloads) both
count: a batch must be written within a statement's time limit on a slow server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import cast
from uuid import UUID

from pgtasks.engine.attempt import MESSAGE_CHARACTERS_MAX, Attempt
from pgtasks.engine.runners import Finished
from pgtasks.errors import DELAY_S_MAX
from pgtasks.outcome import Cancelled, Completed, Dead, Failure, Lost, Outcome, Released, RetryIn, Snoozed
from pgtasks.payload import storable
from pgtasks.store import statements
from pgtasks.store.session import Statement
from pgtasks.store.statements import Moved

ROWS_MAX = 1000
BYTES_MAX = 8 * 1024 * 1024
DROPPED = "drop"


class Batch:
    """Outcomes that one statement writes, sorted by task id: one lock order for all."""

    __slots__ = ("due", "failures", "kind", "part", "refusals")

    def __init__(self, kind: str, part: Finished, failures: int = 0) -> None:
        self.kind, self.part = kind, part
        # How often it failed, for a reason other than the server's.
        self.failures = failures
        # Of one row alone: how often it was refused, and when to offer it again.
        self.refusals, self.due = 0, 0.0

    def __len__(self) -> int:
        return len(self.part)

    def held_by(self) -> list[tuple[int, int]]:
        """Give (task id, lease id) of its rows."""
        return keys(self.part)

    def halves(self) -> list[Batch]:
        """Split it in two; each is as suspect as the whole."""
        middle = len(self.part) // 2
        return [Batch(self.kind, part, self.failures) for part in (self.part[:middle], self.part[middle:])]

    def sorted_out(self, ids: set[int]) -> tuple[list[Batch], list[Batch]]:
        """Split it into the tasks that are not among ``ids`` and those that are; without empty batches."""
        rest = [item for item in self.part if item[0].task.id not in ids]
        found = [item for item in self.part if item[0].task.id in ids]
        return (
            [Batch(self.kind, rest, self.failures)] if rest else [],
            [Batch(self.kind, found, self.failures)] if found else [],
        )

    def statement(self, worker_id: UUID, emptied: list[int]) -> Statement[Moved]:
        """Give the statement that writes it; ``emptied`` are the leases whose last tasks these are."""
        tasks, outcomes = self.held_by(), [outcome for _, outcome in self.part]
        match self.kind:
            case "complete":
                keeps = [attempt.handler.keep_result for attempt, _ in self.part]
                return statements.complete(worker_id, tasks, cast("list[Completed]", outcomes), emptied, keeps)
            case "retry":
                return statements.retry(worker_id, tasks, cast("list[RetryIn]", outcomes), emptied)
            case "bury":
                return statements.bury(worker_id, tasks, cast("list[Dead]", outcomes), emptied)
            case "cancelled":
                return statements.cancelled(worker_id, tasks, cast("list[Cancelled]", outcomes), emptied)
        delays_s = [outcome.delay_s if isinstance(outcome, Snoozed) else 0.0 for outcome in outcomes]
        snoozed = [isinstance(outcome, Snoozed) for outcome in outcomes]
        return statements.release(worker_id, tasks, delays_s, emptied, snoozed)


def batches_of(finished: Iterable[tuple[Attempt, Outcome]], bytes_max: int) -> list[Batch]:
    """Sort outcomes by the statement that writes them, and cut them into batches.

    A single outcome may be larger than ``bytes_max``; it is then a batch of its own.
    """
    parts: dict[str, Finished] = {}
    for item in finished:
        parts.setdefault(_STATEMENT_OF[type(item[1])], []).append(item)
    batches: list[Batch] = []
    for kind, part in parts.items():
        part.sort(key=_key)
        start = size = 0
        for position, item in enumerate(part):
            weight = _weight(item)
            if position > start and (size + weight > bytes_max or position - start >= ROWS_MAX):
                batches.append(Batch(kind, part[start:position]))
                start, size = position, 0
            size += weight
        batches.append(Batch(kind, part[start:]))
    return batches


def plainer(outcome: Outcome, why: str) -> Outcome | None:
    """Give an outcome that says the same without the values that were refused, None if it has none."""
    note = storable(f"not stored: {why}", MESSAGE_CHARACTERS_MAX)
    match outcome:
        case Completed() if outcome.result is not None:
            return Completed(None, f"result {note}")
        case RetryIn() if outcome.failure.error_class != _REFUSED:
            return RetryIn(min(outcome.delay_s, DELAY_S_MAX), _plain(outcome.failure, note))
        case Dead() if outcome.failure.error_class != _REFUSED:
            return replace(outcome, failure=_plain(outcome.failure, note))
        case Cancelled() if not outcome.reason.startswith("reason not stored: "):
            return Cancelled(f"reason {note}")
    return None


def keys(part: Finished) -> list[tuple[int, int]]:
    """Give (task id, lease id) of these."""
    return [(attempt.task.id, attempt.task.lease_id) for attempt, _ in part]


def recognise(kind: str, missing: Finished) -> Statement[int]:
    """Give the statement that tells our own earlier writes from lost leases."""
    completed = kind == "complete"
    return statements.recognise(
        keys(missing),
        traceless=[completed and not attempt.handler.keep_result for attempt, _ in missing],
        queues=[attempt.queue if completed else "" for attempt, _ in missing],
    )


_REFUSED = "pgtasks.errors.DatabaseError"
_WITH_FAILURE = (RetryIn, Dead)
_STATEMENT_OF: dict[type, str] = {
    Completed: "complete",
    RetryIn: "retry",
    Dead: "bury",
    Cancelled: "cancelled",
    Snoozed: "release",
    Released: "release",
    Lost: DROPPED,
}


def _plain(failure: Failure, note: str) -> Failure:
    return Failure(_REFUSED, f"error {note}", "", failure.outcome)


def _key(item: tuple[Attempt, Outcome]) -> tuple[int, int]:
    return item[0].task.id, item[0].task.lease_id


def _weight(item: tuple[Attempt, Outcome]) -> int:
    attempt, outcome = item
    size = _bytes(attempt.task.payload)
    if type(outcome) is Completed:
        return size + _bytes(outcome.result) + _bytes(outcome.note)
    if isinstance(outcome, _WITH_FAILURE):
        return size + _bytes(outcome.failure.traceback) + _bytes(outcome.failure.message)
    return size


def _bytes(text: str | None) -> int:
    """Give a text's size in the database's encoding, or more; reading it for that would cost too much."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)
