"""`pgtasks schedules next`: the fires of an expression or of a schedule, in UTC and on its own clock."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from pgtasks.cli import schedules_known
from pgtasks.cli.database import connected
from pgtasks.cli.escape import escape
from pgtasks.cli.output import print_json
from pgtasks.cron import CronSchedule
from pgtasks.errors import ConfigError, ScheduleError

# What no name is taken for: a nickname, or several words of which the first looks like a field.
_EXPRESSION = re.compile(r"@\S|[*?+\d]|[HR]\b")


def tell(
    what: str,
    number: int,
    *,
    timezone: str | None,
    seconds: bool,
    after: datetime | None,
    as_json: bool,
    dsn: str | None,
) -> None:
    """Print the next fires; raises ScheduleError for a bad expression, NotFound for an unknown name."""
    name, times, now = _find(what, timezone, seconds=seconds, dsn=dsn)
    fires = times.upcoming(number, after or now)
    if as_json:
        print_json(
            {
                "name": name,
                "expression": times.expression,
                "timezone": times.timezone,
                "description": times.describe(),
                "fires": [_iso(fire) for fire in fires],
            }
        )
        return
    sys.stdout.write(f"{escape(times.describe())}\n")
    zone = ZoneInfo(times.timezone)
    for fire in fires:
        local = "" if times.timezone == "UTC" else f"  {fire.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"
        sys.stdout.write(f"{fire:%a %Y-%m-%d %H:%M:%SZ}{local}\n")


def _find(
    what: str, timezone: str | None, *, seconds: bool, dsn: str | None
) -> tuple[str | None, CronSchedule, datetime]:
    """Give the schedule's name, if it is one, its times, and the clock to go by."""
    try:
        return None, CronSchedule(what, timezone or "UTC", seconds=seconds), datetime.now(UTC)
    except ScheduleError as error:
        if error.field == "timezone" or looks_like_expression(what):
            raise
    if timezone is not None or seconds:
        raise ConfigError("--timezone and --seconds are for an expression; a schedule has its own")
    with connected(dsn) as connection:
        one = schedules_known.read(connection, what)
    if not one.enabled:
        sys.stderr.write(f"note: schedule {escape(what)} is paused; these are its fires if it were not\n")
    return one.name, schedules_known.times(one), one.now


def looks_like_expression(what: str) -> bool:
    """Tell whether a text that is no valid expression was meant as one, and not as a name."""
    return bool(_EXPRESSION.match(what)) and (what.startswith("@") or len(what.split()) > 1 or what == "*")


def _iso(fire: datetime) -> str:
    """Give a fire, which is a whole second, without a fraction."""
    return f"{fire:%Y-%m-%dT%H:%M:%SZ}"
