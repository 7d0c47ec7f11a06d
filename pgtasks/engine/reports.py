"""What the executor says about attempts, as events."""

from __future__ import annotations

import time
from collections.abc import Callable

from pgtasks import events
from pgtasks.engine.attempt import Attempt
from pgtasks.engine.runners import Finished
from pgtasks.errors import RetryLater
from pgtasks.outcome import Cancelled, Completed, Dead, Failure, Outcome, RetryIn

# What is said of an attempt whatever the log level; the rest only when it is asked for.
_REPORTED = frozenset({RetryIn, Dead, Cancelled})
# Of so many kinds of failures the traceback is said.
TOLD_MAX = 1_000
# Of failures of one kind that will be tried again; more than a person reads, and little for a disk.
LINES_PER_S = 100
# A handler's wish, and no fault that somebody has to find.
_ASKED = f"{RetryLater.__module__}.{RetryLater.__qualname__}"
_FRAME = '  File "'


def facts_of(attempt: Attempt) -> dict[str, object]:
    """Give what names an attempt in an event."""
    task = attempt.task
    return {"task_id": task.id, "task": task.name, "attempt": task.attempt}


class Reporter:
    """Says how attempts ended that did not succeed.

    The traceback comes with each dead letter, and with the first failure of each task name and error
    class: a task that fails in a loop fills the log with one line each time, not with fifty. Of failures
    that are tried again, at most LINES_PER_S of a kind are listed in any second, and the rest is
    counted: when a service is away that all tasks need, the log must not be what slows the others down.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Kinds of failures whose traceback was said: task name and error class.
        self._told: set[tuple[str, str]] = set()
        # How many there were of each kind in the current second.
        self._second = 0
        self._failed: dict[tuple[str, str], int] = {}

    def report(self, finished: Finished) -> None:
        """Say how those of a batch ended that did not succeed."""
        bad = [item for item in finished if type(item[1]) in _REPORTED]
        if bad:
            self.sum_up()
        for attempt, outcome in bad:
            if type(outcome) is not RetryIn or self._is_listed(attempt.task.name, outcome.failure):
                self._say(attempt, outcome)

    def _say(self, attempt: Attempt, outcome: Outcome) -> None:
        facts = facts_of(attempt)
        match outcome:
            case RetryIn():
                failure = outcome.failure
                trace = _trace(failure) if self._is_first(attempt.task.name, failure) else {}
                events.warning(
                    "task failed", **facts, error=_error(failure), retry_in_s=round(outcome.delay_s, 2), **trace
                )
            case Dead():
                failure = outcome.failure
                events.error("task dead", **facts, reason=outcome.reason, error=_error(failure), **_trace(failure))
            case Cancelled():
                events.info("task cancelled", **facts, reason=_first_line(outcome.reason))

    def sum_up(self, *, at_once: bool = False) -> None:
        """Say how many failures were not listed, once their second is over."""
        second = int(self._clock())
        if second == self._second and not at_once:
            return
        for (name, error_class), count in self._failed.items():
            if count > LINES_PER_S:
                events.warning(
                    "failures not listed",
                    task=name,
                    error=error_class,
                    count=count - LINES_PER_S,
                    advice="pgtasks.attempts has each",
                )
        self._second = second
        self._failed.clear()

    def _is_listed(self, name: str, failure: Failure) -> bool:
        kind = (name, failure.error_class)
        count = self._failed[kind] = self._failed.get(kind, 0) + 1
        return count <= LINES_PER_S

    def _is_first(self, name: str, failure: Failure) -> bool:
        kind = (name, failure.error_class)
        if failure.error_class == _ASKED or kind in self._told or len(self._told) >= TOLD_MAX:
            return False
        self._told.add(kind)
        return True


def report_completed(finished: Finished) -> None:
    """Say each success; only asked for, because a busy worker has tens of thousands a second."""
    now = time.monotonic()
    for attempt, outcome in finished:
        if isinstance(outcome, Completed):
            note = {"note": outcome.note} if outcome.note else {}
            events.debug("task completed", **facts_of(attempt), seconds=round(now - attempt.started, 3), **note)


def _error(failure: Failure) -> str:
    line = _first_line(failure.message)
    return f"{failure.error_class}: {line}" if line else failure.error_class


def _trace(failure: Failure) -> dict[str, str]:
    """Give the traceback's field; none where there are no frames, as of a process that died."""
    return {"traceback": failure.traceback} if _FRAME in failure.traceback else {}


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else ""
