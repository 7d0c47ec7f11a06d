"""Schedules that code defines: ``@app.cron(…)`` checked, before any database sees them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, get_args

from pgtasks import payload as json_payload
from pgtasks.cron import CronSchedule
from pgtasks.errors import ConfigError, PayloadError, seconds
from pgtasks.firing import Missed, Overlap
from pgtasks.model import ScheduleDefinition
from pgtasks.settings import PRIORITY_MAX, PRIORITY_MIN, check_integer, check_name

JITTER_S_MAX = 86400.0
MISSED_MAX = 1000
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def definition(  # noqa: PLR0913 - these are the fields of a schedule
    name: str,
    expression: str,
    task: str,
    *,
    timezone: str = "UTC",
    seconds_first: bool = False,
    payload: dict[str, Any] | None = None,
    queue: str | None = None,
    priority: int | None = None,
    missed: str = "latest",
    missed_max: int = 100,
    overlap: str = "allow",
    jitter: float | str | timedelta = 0.0,
) -> ScheduleDefinition:
    """Check a schedule and give its definition.

    Raises ScheduleError for the expression and the time zone, ConfigError for the rest, each
    naming the field; PayloadError for a payload that is not JSON.
    """
    check_name(name, "schedule name")
    CronSchedule(expression, timezone, seconds=seconds_first)
    _check_choice("missed", missed, get_args(Missed))
    _check_choice("overlap", overlap, get_args(Overlap))
    if missed_max is None:
        raise ConfigError(f"missed_max must be a whole number between 1 and {MISSED_MAX}, got None")
    check_integer("missed_max", missed_max, 1, MISSED_MAX)
    check_integer("priority", priority, PRIORITY_MIN, PRIORITY_MAX)
    if queue is not None:
        check_name(queue, "queue")
    return ScheduleDefinition(
        name=name,
        expression=expression,
        timezone=timezone,
        task=check_name(task, "task name"),
        payload=_payload(payload),
        queue=queue,
        priority=priority,
        seconds=seconds_first,
        missed=missed,  # type: ignore[arg-type]  # checked above
        missed_max=missed_max,
        overlap=overlap,  # type: ignore[arg-type]  # checked above
        jitter_s=span_s(jitter, "jitter", JITTER_S_MAX),
    )


def _payload(payload: object) -> dict[str, Any]:
    """Give the payload as it is stored, apart from what the caller may change later."""
    if payload is None:
        return {}
    if not isinstance(payload, dict):
        raise PayloadError(f"payload must be a dict of the task's arguments, got {type(payload).__name__}")
    text = json_payload.dumps(payload)
    stored: dict[str, Any] = json_payload.loads(text)
    return stored


def _check_choice(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(f"{field} must be {' or '.join(allowed)}, got {value!r}")


def span_s(span: float | str | timedelta, field: str, most_s: float) -> float:
    """Give a span of time in seconds: a number, a timedelta, or text such as ``30s`` or ``1h30m``.

    Raises ConfigError, naming the field.
    """
    if isinstance(span, str):
        parts = _SPAN.findall(span)
        if not parts or "".join(number + unit for number, unit in parts) != span:
            raise ConfigError(f"{field} {span!r} is not a span of time; write 30s, 5m or 1h30m")
        span = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    found = seconds(span, field=field)
    if found > most_s:
        raise ConfigError(f"{field} must be at most {most_s:g} seconds, got {found:g}")
    return found
