"""Making and changing schedules by hand."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import get_args

from pgtasks import schedules
from pgtasks.cli import options, payloads, schedules_known, schedules_screen
from pgtasks.cli.escape import escape
from pgtasks.cli.output import print_json
from pgtasks.cli.render import moment
from pgtasks.cron import CronSchedule
from pgtasks.errors import ConfigError, PgtasksError
from pgtasks.firing import Missed, Overlap
from pgtasks.model import ScheduleDefinition
from pgtasks.store import reading, schedule_reading
from pgtasks.store.schedule_reading import ScheduleDetails
from pgtasks.store.session import SyncConnection, fetch_all, fetch_one

UNSETTABLE = ("queue", "priority")


@dataclass(frozen=True, slots=True)
class Given:
    """The options of `add` and `edit` as they were typed; None where one was not."""

    expression: str | None = None
    task: str | None = None
    payload: str | None = None
    timezone: str | None = None
    seconds: bool | None = None
    queue: str | None = None
    priority: int | None = None
    missed: str | None = None
    missed_max: int | None = None
    overlap: str | None = None
    jitter: str | None = None
    unset: tuple[str, ...] = ()
    enabled: bool | None = None


def definition(name: str, given: Given, old: ScheduleDetails | None = None) -> ScheduleDefinition:
    """Check what was typed, on top of what a schedule is, and give the definition.

    Raises ScheduleError, ConfigError or PayloadError, naming the field.
    """
    _check_word(given.missed, get_args(Missed), "--missed")
    _check_word(given.overlap, get_args(Overlap), "--overlap")
    for word in given.unset:
        _check_word(word, UNSETTABLE, "--unset")
        if getattr(given, word) is not None:
            raise ConfigError(f"--unset {word} and --{word} exclude each other — leave one out")
    jitter = None if given.jitter is None else options.duration(given.jitter, "--jitter")

    def chosen(field: str, default: object) -> object:
        typed = getattr(given, field)
        if typed is not None:
            return typed
        return default if old is None or field in given.unset else getattr(old, field)

    return schedules.definition(
        name,
        str(chosen("expression", "")),
        str(chosen("task", "")),
        timezone=str(chosen("timezone", "UTC")),
        seconds_first=bool(chosen("seconds", False)),
        payload=payloads.read(given.payload),
        queue=chosen("queue", None),  # type: ignore[arg-type]  # text or None in both
        priority=chosen("priority", None),  # type: ignore[arg-type]  # a number or None in both
        missed=str(chosen("missed", "latest")),
        missed_max=chosen("missed_max", 100),  # type: ignore[arg-type]  # a number in both
        overlap=str(chosen("overlap", "allow")),
        jitter=jitter if jitter is not None else 0.0 if old is None else old.jitter_s,
    )


def _check_word(word: str | None, known: tuple[str, ...], option: str) -> None:
    if word is not None and word not in known:
        raise ConfigError(
            f"{option} {word!r} is unknown{options.did_you_mean(word, known)} — one of {', '.join(known)}"
        )


def add(connection: SyncConnection, one: ScheduleDefinition, *, enabled: bool, as_json: bool) -> None:
    """Add a schedule; raises PgtasksError when its name is taken."""
    if fetch_one(connection, schedule_reading.add(one, enabled=enabled)) is None:
        raise PgtasksError(
            f"there is a schedule {one.name!r} already — change it (pgtasks schedules edit), or choose another name"
        )
    _tell(connection, one.name, "added", as_json=as_json)


def edit(connection: SyncConnection, name: str, given: Given, *, force: bool, as_json: bool) -> None:
    """Change a schedule; raises PgtasksError for one of the code, and when somebody else was faster."""
    old = schedules_known.read(connection, name)
    one = definition(name, given, old)
    if old.source == "code" and not force:
        raise PgtasksError(
            f"schedule {name!r} is defined by the code of {old.deployment or 'an app'} — change it there, or pause it "
            "(pgtasks schedules pause), or --force a change that lasts until a worker starts and writes it anew"
        )
    statement = schedule_reading.edit(
        one,
        enabled=old.enabled if given.enabled is None else given.enabled,
        keeps_payload=given.payload is None,
        updated_at=old.updated_at,
    )
    if fetch_one(connection, statement) is None:
        raise PgtasksError(f"schedule {name!r} was changed by somebody else at this moment — look, and try again")
    _tell(connection, name, "changed", as_json=as_json)


def _tell(connection: SyncConnection, name: str, done: str, *, as_json: bool) -> None:
    """Say what there is now, and warn of a task name that no worker has."""
    one = schedules_known.read(connection, name)
    known = [row.name for row in fetch_all(connection, reading.known_names())]
    if known and one.task not in known:
        hint = options.did_you_mean(one.task, known)
        sys.stderr.write(escape(f"note: no worker has registered a task named {one.task!r} yet{hint}") + "\n")
    if as_json:
        print_json(schedules_screen.document(one))
        return
    times = CronSchedule(one.expression, one.timezone, seconds=one.seconds)
    when = f"next fire {moment(times.next_after(one.now))}" if one.enabled else "paused"
    sys.stdout.write(f"schedule {escape(name)} {done}; {when}\n{escape(times.describe())}\n")
