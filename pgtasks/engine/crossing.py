"""What travels between a worker and its child processes, as JSON values: tasks, outcomes, stops."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pgtasks.errors import LeaseLost, TaskTimeout
from pgtasks.model import Claimed
from pgtasks.outcome import (
    Cancelled,
    CancelRequested,
    Completed,
    Dead,
    Failure,
    Lost,
    Outcome,
    Released,
    RetryIn,
    Snoozed,
    StopRequested,
)

_OUTCOMES: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Completed, RetryIn, Dead, Snoozed, Cancelled, Released, Lost)
}


def task_out(task: Claimed) -> dict[str, Any]:
    """Give a claimed task as a JSON value."""
    return {**task._asdict(), "run_at": task.run_at.isoformat()}


def task_in(value: dict[str, Any]) -> Claimed:
    """Give the claimed task that a JSON value stands for."""
    return Claimed(**{**value, "run_at": datetime.fromisoformat(value["run_at"])})


def outcome_out(outcome: Outcome) -> dict[str, Any]:
    """Give an outcome as a JSON value."""
    return {"kind": type(outcome).__name__, **asdict(outcome)}


def outcome_in(value: dict[str, Any]) -> Outcome:
    """Give the outcome that a JSON value stands for."""
    fields = dict(value)
    kind = _OUTCOMES[fields.pop("kind")]
    if "failure" in fields:
        fields["failure"] = Failure(**fields["failure"])
    outcome: Outcome = kind(**fields)
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
