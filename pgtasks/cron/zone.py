"""A time zone's clock: what it shows at an instant, and when it shows a given time.

A wall time is a naive datetime, an instant an aware one in UTC. Where a clock is put back, a
wall time comes twice; where it is put forward, some never come. Offsets change on whole
seconds, and two changes are further apart than ``QUIET``: tests hold that for every zone.
"""

from __future__ import annotations

import difflib
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pgtasks.errors import ScheduleError

ZONE_CHARS_MAX = 64
SECOND = timedelta(seconds=1)
# No clock was ever put back by more: that would repeat the whole day.
QUIET = timedelta(hours=26)
# Each differs from machine to machine, or is there to say that nobody chose a zone.
UNFIT = {"localtime", "Factory"}


@cache
def known() -> frozenset[str]:
    """Give the names of all zones; takes 20 ms the first time, because it reads the folder."""
    return frozenset(available_timezones() - UNFIT)


def load(name: str) -> ZoneInfo:
    """Give the zone of this name.

    Raises ScheduleError when there is none. The name is compared letter by letter, because a
    file system that ignores case would accept here what another machine refuses.
    """
    if not isinstance(name, str):
        raise ScheduleError(f"a time zone is named by a string, not {type(name).__name__}", field="timezone")
    if name != "UTC" and name not in known():
        raise ScheduleError(f"there is no time zone {name[:ZONE_CHARS_MAX]!r}{hint(name)}", field="timezone")
    try:
        return ZoneInfo(name)
    except ZoneInfoNotFoundError:
        raise ScheduleError(f"this machine has no data of {name}{hint(name)}", field="timezone") from None


def hint(name: str) -> str:
    """Say which zone was probably meant, or what a name looks like."""
    if not known():
        return "; this machine knows no time zone at all, install the package tzdata"
    folded = {each.casefold(): each for each in sorted(known())}
    cities = {each.rpartition("/")[2].casefold(): each for each in sorted(known(), reverse=True)}
    wanted = name[:ZONE_CHARS_MAX].strip().casefold().replace(" ", "_")
    for names in (folded, cities):
        close = [wanted] if wanted in names else difflib.get_close_matches(wanted, names, n=1, cutoff=0.8)
        if close:
            return f"; did you mean {names[close[0]]}?"
    return "; it is a name such as Europe/Berlin or UTC, not an abbreviation or an offset"


def offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    """Give how far the clock is ahead of UTC at an instant."""
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def shown(zone: ZoneInfo, instant: datetime) -> datetime:
    """Give the wall time that the clock shows."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def reached(zone: ZoneInfo, instant: datetime) -> datetime:
    """Give the wall time up to which everything has been shown at least once, or skipped.

    This is what the clock shows, except in a repeated hour, where it is the end of that hour
    less one second: what the clock shows now it showed before.
    """
    local = instant.astimezone(zone)
    wall = local.replace(tzinfo=None, fold=0)
    if not local.fold:
        return wall
    first = as_instant(local.replace(fold=0))
    return shown(zone, change(zone, first, instant) - SECOND)


def arrival(zone: ZoneInfo, wall: datetime) -> datetime:
    """Give the first instant at which the clock shows a wall time, or has skipped it."""
    instant = as_instant(wall.replace(tzinfo=zone))
    if shown(zone, instant) == wall:
        return instant
    # With the offset from after the change, a skipped time lies before the change.
    return change(zone, as_instant(wall.replace(tzinfo=zone, fold=1)), instant)


def is_skipped(zone: ZoneInfo, wall: datetime) -> bool:
    """Tell whether the clock never shows a wall time."""
    return shown(zone, as_instant(wall.replace(tzinfo=zone))) != wall


def change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Give the first instant with another offset than ``before``, at most ``after``, by halving the span.

    Both are on a whole second, and there is exactly one change between them.
    """
    old = offset(zone, before)
    low, high = 0, int((after - before) / SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        if offset(zone, before + middle * SECOND) == old:
            low = middle
        else:
            high = middle
    return before + high * SECOND


def as_instant(local: datetime) -> datetime:
    """Give an aware time in UTC."""
    return local.astimezone(UTC)
