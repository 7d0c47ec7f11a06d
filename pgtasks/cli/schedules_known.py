"""Reading one schedule by name, and saying which one was probably meant."""

from __future__ import annotations

from pgtasks.cli.options import as_typed, did_you_mean
from pgtasks.cron import CronSchedule
from pgtasks.errors import NotFound, PgtasksError, ScheduleError
from pgtasks.store import schedule_reading
from pgtasks.store.schedule_reading import ScheduleDetails
from pgtasks.store.session import SyncConnection, fetch_all, fetch_one


def read(connection: SyncConnection, name: str) -> ScheduleDetails:
    """Read a schedule; raises NotFound."""
    found = fetch_one(connection, schedule_reading.schedule(name))
    if found is None:
        raise missing(connection, name)
    return found


def missing(connection: SyncConnection, name: str) -> NotFound:
    """Say that there is no such schedule."""
    known = [row[0] for row in fetch_all(connection, schedule_reading.names())]
    return NotFound(f"there is no schedule {name!r}{did_you_mean(name, known)} — see: pgtasks schedules list")


def times(one: ScheduleDetails) -> CronSchedule:
    """Give the fire times of a schedule; raises PgtasksError for one that somebody wrote wrongly with SQL."""
    try:
        return CronSchedule(one.expression, one.timezone, seconds=one.seconds)
    except ScheduleError as error:
        raise PgtasksError(
            f"schedule {one.name!r} cannot be planned: {as_typed(str(error))} — change it with: pgtasks schedules edit"
        ) from None
