"""Schedules as people see and steer them: the statements behind `pgtasks schedules` and `status`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pgtasks import payload as json_payload
from pgtasks.model import ScheduleDefinition
from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql

# How many schedules `status` looks at.
SCAN_ROWS = 100_000
NAMES_MAX = 10_000
# How many slots of the last day `status` counts: some milliseconds.
COUNTED_FIRES_MAX = 10_000
# How many schedules of an unknown task `status` names.
NAMED_MAX = 3


class ScheduleRow(NamedTuple):
    """A schedule in a list; ``fired``, ``missed_fires`` and ``skipped`` count its fires of the last day."""

    now: datetime
    name: str
    expression: str
    timezone: str
    seconds: bool
    task: str
    queue: str | None
    enabled: bool
    source: str
    deployment: str | None
    next_fire: datetime | None
    last_fire: datetime | None
    overdue_s: float
    lateness_s: float | None
    fired: int
    missed_fires: int
    skipped: int
    problem: str | None


class ScheduleDetails(NamedTuple):
    """Everything about a schedule; ``payload`` is JSON text."""

    now: datetime
    name: str
    expression: str
    timezone: str
    seconds: bool
    task: str
    payload: str
    queue: str | None
    priority: int | None
    enabled: bool
    missed: str
    missed_max: int
    overlap: str
    jitter_s: float
    source: str
    deployment: str | None
    planned_from: datetime
    next_fire: datetime | None
    last_fire: datetime | None
    problem: str | None
    created_at: datetime
    updated_at: datetime
    overdue_s: float
    lateness_s: float | None
    fired: int
    missed_fires: int
    skipped: int


class FireRow(NamedTuple):
    """What became of one fire time; ``status`` is that of its task, None when it is forgotten.

    ``lateness_s`` is None for a backfill, which nobody was late for.
    """

    fire_time: datetime
    outcome: str
    task_id: int | None
    fired_at: datetime
    backfilled: bool
    lateness_s: float | None
    status: str | None


class SlotRow(NamedTuple):
    """A fire time that has a row."""

    fire_time: datetime
    outcome: str


class Removed(NamedTuple):
    """Whose schedule was removed."""

    source: str
    deployment: str | None


class Run(NamedTuple):
    """The task that was enqueued; None when a living one is in the way."""

    id: int | None
    living: int | None


class CountRow(NamedTuple):
    """All schedules in numbers."""

    total: int
    enabled: int
    overdue: int
    problems: int
    next_fire: datetime | None


class FiresRow(NamedTuple):
    """What became of the slots since a moment: a day ago, or later if that is as far as was counted."""

    fired: int
    missed: int
    skipped: int
    late_s: float | None
    since: datetime
    limited: bool


class TroubleRow(NamedTuple):
    """What deserves a look: of kind problem, overdue or unplanned one schedule, of unknown_task all that have it."""

    kind: str
    name: str
    task: str
    problem: str | None
    since: datetime | None
    names: list[str]
    schedules: int


def schedules(*, limit: int) -> Statement[ScheduleRow]:
    """List schedules by name."""
    return Statement(sql("schedules_list"), {"limit": limit}, ScheduleRow)


def schedule(name: str) -> Statement[ScheduleDetails]:
    """Read one schedule."""
    return Statement(sql("schedules_show"), {"name": name}, ScheduleDetails)


def names() -> Statement[tuple[str]]:
    """Name the schedules."""
    return Statement(sql("schedules_names"), {"limit": NAMES_MAX})


def add(one: ScheduleDefinition, *, enabled: bool) -> Statement[tuple[str]]:
    """Add a schedule; no row comes back when its name is taken."""
    return Statement(sql("schedules_add"), {**_columns(one), "enabled": enabled})


def edit(one: ScheduleDefinition, *, enabled: bool, keeps_payload: bool, updated_at: datetime) -> Statement[tuple[str]]:
    """Change a schedule; no row comes back when it is not as it was read."""
    columns = _columns(one) | ({"payload": None} if keeps_payload else {})
    return Statement(sql("schedules_edit"), {**columns, "enabled": enabled, "updated_at": updated_at})


def _columns(one: ScheduleDefinition) -> dict[str, Any]:
    return {
        "name": one.name,
        "expression": one.expression,
        "timezone": one.timezone,
        "seconds": one.seconds,
        "task": one.task,
        "payload": json_payload.dumps(one.payload),
        "queue": one.queue,
        "priority": one.priority,
        "missed": one.missed,
        "missed_max": one.missed_max,
        "overlap": one.overlap,
        "jitter_s": one.jitter_s,
    }


def pause(name: str) -> Statement[tuple[bool]]:
    """Pause a schedule; no row comes back when there is none."""
    return Statement(sql("schedules_pause"), {"name": name, "enabled": False})


def resume(name: str) -> Statement[tuple[bool]]:
    """Let a schedule go on; no row comes back when there is none."""
    return Statement(sql("schedules_pause"), {"name": name, "enabled": True})


def remove(name: str) -> Statement[Removed]:
    """Remove a schedule; no row comes back when there is none."""
    return Statement(sql("schedules_remove"), {"name": name}, Removed)


def deployments() -> Statement[tuple[str]]:
    """Name the deployments whose code defines schedules."""
    return Statement(sql("schedules_deployments"), {"limit": NAMES_MAX})


def prune(deployment: str, names: Sequence[str], *, dry_run: bool) -> Statement[tuple[str]]:
    """Remove, or only name, the schedules of a deployment that its code no longer defines."""
    return Statement(sql("schedules_prune"), {"deployment": deployment, "names": list(names), "dry_run": dry_run})


def run(name: str) -> Statement[Run]:
    """Enqueue a schedule's task now; no row comes back when there is no such schedule."""
    return Statement(sql("schedules_run"), {"name": name}, Run)


def history(name: str, *, limit: int) -> Statement[FireRow]:
    """List what became of a schedule's fire times, the latest first."""
    return Statement(sql("schedules_history"), {"name": name, "limit": limit}, FireRow)


def slots(name: str, fire_times: Sequence[datetime]) -> Statement[SlotRow]:
    """Read which of some fire times have a row."""
    return Statement(sql("schedules_slots"), {"name": name, "fire_times": list(fire_times)}, SlotRow)


def backfill(
    name: str, planned_from: datetime, fire_times: Sequence[datetime], *, also_missed: bool
) -> Statement[tuple[int]]:
    """Fire past slots; no row comes back when the schedule was changed meanwhile."""
    return Statement(
        sql("schedules_backfill"),
        {"name": name, "plan": planned_from, "fire_times": list(fire_times), "also_missed": also_missed},
    )


def count(*, overdue_s: float) -> Statement[CountRow]:
    """Count the schedules."""
    return Statement(sql("schedules_count"), {"overdue_s": overdue_s, "limit": SCAN_ROWS}, CountRow)


def count_fires(*, limit: int = COUNTED_FIRES_MAX) -> Statement[FiresRow]:
    """Count what became of the slots of the last day."""
    return Statement(sql("schedule_fires_count"), {"limit": limit}, FiresRow)


def troubled(*, overdue_s: float, limit: int) -> Statement[TroubleRow]:
    """Find schedules that deserve a look."""
    return Statement(
        sql("schedules_troubled"),
        {"overdue_s": overdue_s, "limit": limit, "scan": SCAN_ROWS, "named": NAMED_MAX},
        TroubleRow,
    )
