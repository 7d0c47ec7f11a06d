"""What the executor says about attempts, as events."""

from __future__ import annotations

import time

from pgtasks import events
from pgtasks.engine.attempt import Attempt
from pgtasks.engine.runners import Finished
from pgtasks.outcome import Cancelled, Completed, Dead, Outcome, RetryIn

# What is said of each attempt, whatever the log level; the rest only when it is asked for.
REPORTED = frozenset({RetryIn, Dead, Cancelled})


def facts_of(attempt: Attempt) -> dict[str, object]:
    """Give what names an attempt in an event."""
    task = attempt.task
    return {"task_id": task.id, "task": task.name, "attempt": task.attempt}


def report(attempt: Attempt, outcome: Outcome) -> None:
    """Say how an attempt ended that did not succeed."""
    facts = facts_of(attempt)
    match outcome:
        case RetryIn():
            events.warning(
                "task failed",
                **facts,
                error=f"{outcome.failure.error_class}: {_first_line(outcome.failure.message)}",
                retry_in_s=round(outcome.delay_s, 2),
            )
        case Dead():
            events.error(
                "task dead",
                **facts,
                reason=outcome.reason,
                error=f"{outcome.failure.error_class}: {_first_line(outcome.failure.message)}",
            )
        case Cancelled():
            events.info("task cancelled", **facts, reason=_first_line(outcome.reason))
        case _:
            events.debug("task ended", **facts, outcome=type(outcome).__name__)


def report_completed(finished: Finished) -> None:
    """Say each success; only asked for, because a busy worker has tens of thousands a second."""
    now = time.monotonic()
    for attempt, outcome in finished:
        if isinstance(outcome, Completed):
            note = {"note": outcome.note} if outcome.note else {}
            events.debug("task completed", **facts_of(attempt), seconds=round(now - attempt.started, 3), **note)


def _first_line(text: str) -> str:
    return text.splitlines()[0][:300] if text.strip() else ""
