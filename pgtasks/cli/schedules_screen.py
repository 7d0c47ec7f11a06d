"""What `pgtasks schedules list`, `show` and `history` print."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pgtasks.cli import render
from pgtasks.cli.amounts import age, late, number
from pgtasks.cli.options import as_typed
from pgtasks.cli.output import RawJson, print_json
from pgtasks.cron import CronSchedule
from pgtasks.errors import ScheduleError
from pgtasks.store.overview import OVERDUE_S
from pgtasks.store.schedule_reading import FireRow, ScheduleDetails, ScheduleRow

TEXT_CHARACTERS_MAX = 20_000
FIRES_SHOWN = 5
_OUTCOME_STYLES = {"fired": "green", "missed": "red", "skipped_overlap": "yellow"}
_STATE_STYLES = {"on": "", "paused": "yellow", "problem": "red", "overdue": "red"}


def state(row: ScheduleRow | ScheduleDetails) -> str:
    """Say how a schedule does: paused, problem (it cannot be planned or fired), overdue or on."""
    if not row.enabled:
        return "paused"
    if row.problem is not None:
        return "problem"
    return "overdue" if row.overdue_s > OVERDUE_S else "on"


def show_list(rows: list[ScheduleRow], *, limit: int, as_json: bool) -> None:
    """Print schedules."""
    if as_json:
        print_json({"schedules": [document(row) for row in rows]})
        return
    if not rows:
        sys.stderr.write("no schedules yet; make one: pgtasks schedules add NAME EXPRESSION TASK\n")
        return
    table = render.table(
        [
            ("name", "left"),
            ("when", "left"),
            ("task", "left"),
            ("state", "left"),
            ("next", "right"),
            ("last", "right"),
            ("late", "right"),
            ("missed", "right"),
            ("skipped", "right"),
        ],
        flexible=["name", "when", "task"],
    )
    for row in rows:
        table.add_row(*_cells(row))
    render.draw(table)
    if len(rows) == limit and sys.stdout.isatty():
        sys.stderr.write(f"the first {limit:,}; --limit shows more\n")


def _cells(row: ScheduleRow) -> Iterator[Text]:
    shown = state(row)
    yield render.safe(row.name)
    yield render.safe(row.expression if row.timezone == "UTC" else f"{row.expression} {row.timezone}")
    yield render.safe(row.task)
    yield Text(shown, style=_STATE_STYLES[shown])
    yield Text(_ahead(row.next_fire, row.now), style="red" if shown == "overdue" else "")
    yield Text("-" if row.last_fire is None else f"{age(_seconds(row.now - row.last_fire))} ago")
    yield Text(late(row.lateness_s))
    yield Text(number(row.missed_fires), style="red" if row.missed_fires else "dim")
    yield Text(number(row.skipped), style="yellow" if row.skipped else "dim")


def _ahead(then: datetime | None, now: datetime) -> str:
    if then is None:
        return "-"
    return f"in {age(_seconds(then - now))}" if then > now else f"{age(_seconds(now - then))} over"


def _seconds(span: timedelta) -> float:
    return span / timedelta(seconds=1)


def document(row: ScheduleRow | ScheduleDetails) -> dict[str, Any]:
    """Give a schedule as an object of a JSON document."""
    fields = row._asdict()
    del fields["now"]
    for name in ("overdue_s", "lateness_s", "jitter_s"):
        if fields.get(name) is not None:
            fields[name] = round(fields[name], 6)
    if isinstance(row, ScheduleDetails):
        fields["payload"] = RawJson(row.payload)
    return {**fields, "state": state(row)}


# --- One schedule ---


def show_one(one: ScheduleDetails, *, as_json: bool) -> None:
    """Print a schedule, with what its expression means and its next fires."""
    try:
        times = CronSchedule(one.expression, one.timezone, seconds=one.seconds)
        meaning, fires = times.describe(), times.upcoming(FIRES_SHOWN, one.now)
    except ScheduleError as error:
        meaning, fires = f"cannot be planned: {as_typed(str(error))}", []
    if as_json:
        print_json({**document(one), "description": meaning, "upcoming": fires if one.enabled else []})
        return
    parts: list[RenderableType] = [render.facts(_facts(one, meaning))]
    if one.payload != "{}":
        parts.extend([Text(), Text("payload", style="bold")])
        parts.append(render.safe_block(one.payload, characters_max=TEXT_CHARACTERS_MAX))
    if fires and one.enabled:
        parts.extend([Text(), Text("next fires (UTC)", style="bold")])
        parts.extend(Text(render.moment(fire)) for fire in fires)
    render.draw(Group(*parts))


def _facts(one: ScheduleDetails, meaning: str) -> Iterator[tuple[str, Text | str]]:
    shown = state(one)
    yield "schedule", render.safe(one.name)
    yield "when", render.safe(f"{one.expression} {one.timezone}{', seconds first' if one.seconds else ''}")
    yield "meaning", render.safe(meaning, characters_max=TEXT_CHARACTERS_MAX)
    yield "task", render.safe(one.task)
    yield "queue", "the handler's" if one.queue is None else render.safe(one.queue)
    yield "priority", "the handler's" if one.priority is None else str(one.priority)
    yield "state", Text(shown, style=_STATE_STYLES[shown])
    if one.problem is not None:
        yield "problem", render.safe(as_typed(one.problem), "red", characters_max=TEXT_CHARACTERS_MAX)
    yield "missed", f"all, at most {one.missed_max}" if one.missed == "all" else render.safe(one.missed)
    yield "overlap", render.safe(one.overlap)
    yield "jitter", f"up to {one.jitter_s:g} s" if one.jitter_s else "none"
    yield "defined by", render.safe(_source(one))
    yield "next fire", f"{render.moment(one.next_fire)} ({_ahead(one.next_fire, one.now)})" if one.next_fire else "-"
    yield "last fire", render.moment(one.last_fire)
    if one.lateness_s is not None:
        yield "lateness", late(one.lateness_s)
    yield "within a day", f"{one.fired:,} fired, {one.missed_fires:,} missed, {one.skipped:,} skipped"
    yield "created", render.moment(one.created_at)
    yield "changed", render.moment(one.updated_at)


def _source(one: ScheduleDetails) -> str:
    return f"the code of {one.deployment or 'an app'}" if one.source == "code" else "a person"


# --- History ---


def show_history(rows: list[FireRow], *, limit: int, as_json: bool) -> None:
    """Print fires."""
    if as_json:
        print_json({"fires": [_fire_document(row) for row in rows]})
        return
    if not rows:
        sys.stderr.write("it has not fired yet\n")
        return
    table = render.table(
        [
            ("fire time (UTC)", "left"),
            ("outcome", "left"),
            ("late", "right"),
            ("task", "right"),
            ("status", "left"),
        ]
    )
    for row in rows:
        table.add_row(
            Text(render.moment(row.fire_time)),
            render.safe(
                "backfilled" if row.backfilled else row.outcome.replace("_", " "), _OUTCOME_STYLES.get(row.outcome, "")
            ),
            Text(late(row.lateness_s)),
            render.safe(row.task_id),
            Text("-", style="dim") if row.status is None else render.status(row.status),
        )
    render.draw(table)
    if len(rows) == limit and sys.stdout.isatty():
        sys.stderr.write(f"the latest {limit:,}; --limit shows more\n")


def _fire_document(row: FireRow) -> dict[str, Any]:
    return {**row._asdict(), "lateness_s": None if row.lateness_s is None else round(row.lateness_s, 6)}
