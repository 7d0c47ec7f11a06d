"""What becomes of an attempt: a closed set of values, and the pure rule that picks one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pgtasks.errors import (
    Cancel,
    LeaseLost,
    PayloadError,
    PermanentError,
    ProcessDied,
    RetryLater,
    Snooze,
    TaskTimeout,
    seconds,
)
from pgtasks.payload import storable
from pgtasks.retry import Retry

DeadReason = Literal["exhausted", "permanent", "worker_lost"]
AttemptOutcome = Literal["failed", "timed_out", "cancelled", "worker_lost"]
REASON_CHARACTERS_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt went wrong, as text fit for the database."""

    error_class: str
    message: str
    traceback: str
    outcome: AttemptOutcome = "failed"


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned. ``result`` is JSON text or None; ``note`` says why one was not kept."""

    result: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class RetryIn:
    """The attempt failed; the task is queued again after ``delay_s``."""

    delay_s: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class Dead:
    """The attempt failed and was the last: the task becomes a dead letter."""

    reason: DeadReason
    failure: Failure


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to be run later; no attempt is charged."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task is finished as cancelled."""

    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """The worker gives the task back unfinished; no attempt is charged."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease ended while the handler ran; whatever it did is dropped."""


Outcome: TypeAlias = Completed | RetryIn | Dead | Snoozed | Cancelled | Released | Lost


class CancelRequested(BaseException):
    """Stands for "somebody cancelled this running task"; never leaves the engine."""


class StopRequested(BaseException):
    """Stands for "this worker is stopping"; never leaves the engine."""


# What _steered has an outcome for.
_NO_FAILURE = (Snooze, Cancel, CancelRequested, StopRequested, LeaseLost)
# As tuples: to write a union takes a failing attempt as long as to look at it.
_PERMANENT = (PermanentError, PayloadError)
_NO_ERROR_OF_ITS_OWN = (TaskTimeout, ProcessDied)


def max_attempts_of(row_limit: int | None, policy: Retry) -> int:
    """Give the limit on starts: the task's own, else its handler's policy."""
    return policy.max_attempts if row_limit is None else row_limit


def decide(
    error: BaseException,
    failure: Failure,
    *,
    attempt: int,
    max_attempts: int,
    policy: Retry,
    rng: random.Random,
) -> Outcome:
    """Say what becomes of an attempt that ended in ``error``.

    ``error`` is what the handler raised, or the engine's own reason for stopping it
    (TaskTimeout, CancelRequested, StopRequested, LeaseLost), or ProcessDied. Pure: chance comes
    from ``rng``. A dead process is retried whatever the policy says of errors: the handler raised none.
    Raises ConfigError when a handler steers with a delay that is none.
    """
    if isinstance(error, _NO_FAILURE):
        return _steered(error)
    if isinstance(error, _PERMANENT):
        return Dead("permanent", failure)
    if attempt >= max_attempts:
        return Dead("worker_lost" if isinstance(error, ProcessDied) else "exhausted", failure)
    if isinstance(error, RetryLater):
        return RetryIn(seconds(error.delay_s), failure)
    if isinstance(error, _NO_ERROR_OF_ITS_OWN) or policy.retries(error):
        return RetryIn(policy.delay_s(attempt, rng), failure)
    return Dead("permanent", failure)


def _steered(error: BaseException) -> Outcome:
    """Give the outcome of an end that is no failure."""
    match error:
        case Snooze():
            return Snoozed(seconds(error.delay_s))
        case Cancel():
            return Cancelled(storable(str(error.reason), REASON_CHARACTERS_MAX))
        case CancelRequested():
            return Cancelled("cancelled while it ran")
        case StopRequested():
            return Released()
        case LeaseLost():
            return Lost()
    raise TypeError(f"{type(error).__name__} has no outcome of its own")
