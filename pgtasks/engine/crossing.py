"""What travels between a worker and its child processes, as JSON values: tasks, outcomes, stops.

What a worker sends is taken as it is. What a child sends is checked, as the handlers of a child
may have done anything to it: an outcome that the worker could not write must not get that far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, get_args

from pgtasks.engine.attempt import CLASS_CHARACTERS_MAX, MESSAGE_CHARACTERS_MAX, TRACEBACK_CHARACTERS_MAX
from pgtasks.errors import LeaseLost, TaskTimeout
from pgtasks.model import Claimed
from pgtasks.outcome import (
    REASON_CHARACTERS_MAX,
    AttemptOutcome,
    Cancelled,
    CancelRequested,
    Completed,
    Dead,
    DeadReason,
    Failure,
    Lost,
    Outcome,
    Released,
    RetryIn,
    Snoozed,
    StopRequested,
)
from pgtasks.payload import RESULT_BYTES_MAX, storable


def task_out(task: Claimed) -> dict[str, Any]:
    """Give a claimed task as a JSON value."""
    return {**task._asdict(), "run_at": task.run_at.isoformat()}


def task_in(value: dict[str, Any]) -> Claimed:
    """Give the claimed task that a JSON value stands for."""
    return Claimed(**{**value, "run_at": datetime.fromisoformat(value["run_at"])})


def outcome_out(outcome: Outcome) -> dict[str, Any]:
    """Give an outcome as a JSON value."""
    return {"kind": type(outcome).__name__, **asdict(outcome)}


def outcome_in(value: object) -> Outcome:
    """Give the outcome that a JSON value stands for; raises ValueError for one that stands for none."""
    name = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or name not in _OUTCOMES:
        raise ValueError("an outcome of no kind that there is")
    kind, checks = _OUTCOMES[name]
    outcome: Outcome = kind(**_checked({field: value[field] for field in value if field != "kind"}, checks))
    return outcome


def reason_out(reason: BaseException) -> dict[str, str]:
    """Give the reason for a stop as a JSON value."""
    known = (TaskTimeout, CancelRequested, LeaseLost)
    kind = next((kind.__name__ for kind in known if isinstance(reason, kind)), "")
    return {"kind": kind, "text": str(reason)}


def reason_in(value: dict[str, str]) -> BaseException:
    """Give the reason that a JSON value stands for; whatever else there is, the task is released."""
    match value["kind"]:
        case "TaskTimeout":
            return TaskTimeout(value["text"])
        case "CancelRequested":
            return CancelRequested()
        case "LeaseLost":
            return LeaseLost(value["text"])
    return StopRequested(value["text"])


Check = Callable[[object], Any]


def _checked(value: object, checks: Mapping[str, Check]) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != checks.keys():
        raise ValueError(f"fields other than {sorted(checks)}")
    return {field: check(value[field]) for field, check in checks.items()}


def _text(limit: int) -> Check:
    # Made fit for the database, it may have become longer: by what says what was left out, and by escapes.
    longest = 6 * (limit + 100)

    def check(value: object) -> str:
        if not isinstance(value, str) or len(value) > longest:
            raise ValueError(f"a value that is no text of at most {longest:,} characters")
        if not (value.isascii() and "\0" not in value) and storable(value, longest) != value:
            raise ValueError("a text that the database cannot store")
        return value

    return check


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _one_of(names: tuple[str, ...]) -> Check:
    def check(value: object) -> object:
        if value not in names:
            raise ValueError(f"a value that is none of {names}")
        return value

    return check


def _delay(value: object) -> float:
    # A policy may have a cap beyond what the database takes, which is seen to when it is written.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError("a value that is no delay in seconds")
    return float(value)


def _failure(value: object) -> Failure:
    return Failure(**_checked(value, _FAILURE))


_FAILURE: dict[str, Check] = {
    "error_class": _text(CLASS_CHARACTERS_MAX),
    "message": _text(MESSAGE_CHARACTERS_MAX),
    "traceback": _text(TRACEBACK_CHARACTERS_MAX),
    "outcome": _one_of(get_args(AttemptOutcome)),
}
_OUTCOMES: dict[str, tuple[type[Any], dict[str, Check]]] = {
    "Completed": (
        Completed,
        {"result": _optional(_text(RESULT_BYTES_MAX)), "note": _optional(_text(MESSAGE_CHARACTERS_MAX))},
    ),
    "RetryIn": (RetryIn, {"delay_s": _delay, "failure": _failure}),
    "Dead": (Dead, {"reason": _one_of(get_args(DeadReason)), "failure": _failure}),
    "Snoozed": (Snoozed, {"delay_s": _delay}),
    "Cancelled": (Cancelled, {"reason": _text(REASON_CHARACTERS_MAX)}),
    "Released": (Released, {}),
    "Lost": (Lost, {}),
}
