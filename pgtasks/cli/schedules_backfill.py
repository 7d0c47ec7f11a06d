"""Firing past slots that have no fire yet, in batches.

Each batch is a transaction of its own, and the primary key of `schedule_fires` says who fires a
slot: what is done stays done when somebody presses Ctrl-C, and doing it again fires the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from pgtasks.cli import schedules_known
from pgtasks.cli.output import print_json
from pgtasks.cli.render import moment
from pgtasks.cron import CronSchedule
from pgtasks.errors import ConfigError, PgtasksError
from pgtasks.store import schedule_reading
from pgtasks.store.schedule_reading import ScheduleDetails
from pgtasks.store.session import SyncConnection, fetch_all, fetch_one

BATCH_SLOTS = 500
# A bit less than what maintenance keeps: no slot may be forgotten while it is looked at.
KNOWN_DAYS = 29
SHOWN_MAX = 50
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Asked:
    """What to backfill: slots from ``start`` on, before ``end``; None is now."""

    name: str
    start: datetime | None
    end: datetime | None
    also_missed: bool
    allow_overlap: bool
    force: bool
    limit: int


@dataclass(slots=True)
class Done:
    """How many slots were fired (or would be), and how many have a fire already."""

    fired: int = 0
    already: int = 0
    limited: bool = False


def backfill(connection: SyncConnection, asked: Asked, *, dry_run: bool, as_json: bool) -> None:
    """Fire the slots, or only list them; raises NotFound, ConfigError or PgtasksError."""
    one = schedules_known.read(connection, asked.name)
    times = schedules_known.times(one)
    start, end = _span(asked, one)
    if one.overlap == "skip" and not asked.allow_overlap:
        raise PgtasksError(
            f"the tasks of schedule {asked.name!r} must not overlap, and a backfill makes many that run side by side — "
            "--allow-overlap if they may this time"
        )
    done, open_slots = Done(), list[datetime]()
    for batch in _batches(times, start, end):
        free = _free(connection, asked, batch)
        done.already += len(batch) - len(free)
        room = asked.limit - done.fired
        done.limited = len(free) > room
        fired = len(free[:room]) if dry_run else _fire(connection, asked, one, free[:room])
        done.fired += fired
        done.already += len(free[:room]) - fired
        open_slots.extend(free[:room] if dry_run else ())
        if done.limited:
            break
    _tell(asked, done, open_slots, dry_run=dry_run, as_json=as_json)


def _span(asked: Asked, one: ScheduleDetails) -> tuple[datetime, datetime]:
    start, end = asked.start or one.now, asked.end or one.now
    if end > one.now:
        raise ConfigError(f"--to lies in the future — the slots up to now ({moment(one.now)}) can be backfilled")
    if start >= end:
        raise ConfigError("--from must lie before --to, which is now when not given")
    if one.now - start > timedelta(days=KNOWN_DAYS) and not asked.force:
        raise ConfigError(
            f"--from lies more than {KNOWN_DAYS} days back, and what fired then is forgotten: slots could be fired "
            "twice — --force to mean it"
        )
    return start, end


def _batches(times: CronSchedule, start: datetime, end: datetime) -> Iterator[list[datetime]]:
    """Give the slots from ``start`` on and before ``end``."""
    after = start - _SECOND if start.microsecond == 0 else start
    last = end - timedelta(microseconds=1)
    while batch := times.between(after, last, BATCH_SLOTS):
        yield batch
        after = batch[-1]


def _free(connection: SyncConnection, asked: Asked, batch: list[datetime]) -> list[datetime]:
    """Give the slots of a batch that are to be fired, as far as can be seen now."""
    rows = fetch_all(connection, schedule_reading.slots(asked.name, batch))
    taken = {row.fire_time for row in rows if not (asked.also_missed and row.outcome == "missed")}
    return [slot for slot in batch if slot not in taken]


def _fire(connection: SyncConnection, asked: Asked, one: ScheduleDetails, slots: list[datetime]) -> int:
    if not slots:
        return 0
    row = fetch_one(
        connection, schedule_reading.backfill(asked.name, one.planned_from, slots, also_missed=asked.also_missed)
    )
    if row is None:
        raise PgtasksError(
            f"schedule {asked.name!r} was changed or removed meanwhile; what was fired until then stays — try again"
        )
    return row[0]


def _tell(asked: Asked, done: Done, slots: list[datetime], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        document = {"name": asked.name, "dry_run": dry_run, "fired": done.fired, "already_there": done.already}
        print_json({**document, "limited": done.limited, **({"slots": slots} if dry_run else {})})
        return
    verb = "would be fired" if dry_run else "fired"
    sys.stdout.write(f"{done.fired:,} {verb}, {done.already:,} already there\n")
    for slot in slots[:SHOWN_MAX]:
        sys.stdout.write(f"  {moment(slot)}\n")
    if len(slots) > SHOWN_MAX:
        sys.stdout.write(f"  … and {len(slots) - SHOWN_MAX:,} more\n")
    if done.limited:
        sys.stdout.write(f"more are left: at most {asked.limit:,} at a time (--limit); run it again\n")
