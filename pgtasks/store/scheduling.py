"""Schedules: the statements that read, fire, flag and write them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, NamedTuple

from pgtasks.firing import Due, Plan
from pgtasks.model import ScheduleDefinition
from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql


class Fired(NamedTuple):
    """What a fire statement did, as counts, and how late the latest of its fires was."""

    schedules: int
    fired: int
    skipped: int
    missed: int
    busy: int
    late_s: float


class Synced(NamedTuple):
    """What writing an app's schedules did, as names."""

    written: list[str]
    foreign_names: list[str]
    removed: list[str]


def due(*, limit: int, seed: int, left_out: Sequence[tuple[str, datetime]] = ()) -> Statement[Due]:
    """Read which schedules are due or not planned yet; ``left_out`` names some with their ``planned_from``."""
    return Statement(
        sql("schedules_due"),
        {
            "limit": limit,
            "seed": seed,
            "left_names": [name for name, _ in left_out],
            "left_plans": [planned_from for _, planned_from in left_out],
        },
        _due,
    )


def _due(*values: Any) -> Due:
    """Read a row, with its times in UTC.

    Behind a pooler the session has the server's time zone, and Python compares two times of one
    zone by what its clocks show: an hour wrong when they are changed.
    """
    row: Iterator[Any] = (value.astimezone(UTC) if isinstance(value, datetime) else value for value in values)
    return Due._make(row)


def fire(plans: Sequence[Plan], *, locked: bool, wait_ms: int = 500) -> Statement[Fired]:
    """Carry out plans: fire rows, tasks and next fire times in one statement."""
    slots = [slot for plan in plans for slot in plan.slots]
    ends = list(accumulate(len(plan.slots) for plan in plans))
    return Statement(
        sql("schedules_fire"),
        {
            "names": [plan.name for plan in plans],
            "planned_froms": [plan.planned_from for plan in plans],
            "expected": [plan.expected for plan in plans],
            "nexts": [plan.next_fire for plan in plans],
            "slot_firsts": [end - len(plan.slots) + 1 for plan, end in zip(plans, ends, strict=True)],
            "slot_lasts": ends,
            "slot_times": [slot.fire_time for slot in slots],
            "slot_fires": [slot.outcome == "fired" for slot in slots],
            "slot_jitters": [slot.jitter_s for slot in slots],
            "locked": locked,
            "wait_ms": wait_ms,
        },
        Fired,
    )


def flag(name: str, planned_from: datetime, next_fire: datetime | None, problem: str, *, wait: bool) -> Statement[str]:
    """Note why a schedule cannot be planned or fired; ``wait`` has every scheduler leave it alone for a minute."""
    params = {"name": name, "planned_from": planned_from, "next_fire": next_fire, "problem": problem, "wait": wait}
    return Statement(sql("schedules_flag"), params, str)


def sync(deployment: str, schedules: Sequence[ScheduleDefinition]) -> Statement[Synced]:
    """Write an app's schedules to the table."""
    return Statement(
        sql("schedules_sync"),
        {
            "deployment": deployment,
            "names": [one.name for one in schedules],
            "expressions": [one.expression for one in schedules],
            "timezones": [one.timezone for one in schedules],
            "seconds": [one.seconds for one in schedules],
            "tasks": [one.task for one in schedules],
            "payloads": [json.dumps(one.payload) for one in schedules],
            "queues": [one.queue for one in schedules],
            "priorities": [one.priority for one in schedules],
            "misseds": [one.missed for one in schedules],
            "missed_maxes": [one.missed_max for one in schedules],
            "overlaps": [one.overlap for one in schedules],
            "jitters": [one.jitter_s for one in schedules],
        },
        Synced,
    )


def prune_fires(*, keep_days: int, limit: int) -> Statement[int]:
    """Forget old fires, a bounded batch at a time."""
    return Statement(sql("schedule_fires_prune"), {"keep_days": keep_days, "limit": limit}, int)
