"""Vixie cron by brute force: every minute of UTC is asked what the clock shows.

Nothing here is shared with pgtasks, and nothing is clever: it is what the schedules are held
against. The day rules are those of Vixie cron, the rules for clock changes those of Debian's cron.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

MONTHS = dict(
    zip(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), range(1, 13), strict=True)
)
WEEKDAYS = dict(zip(("sun", "mon", "tue", "wed", "thu", "fri", "sat"), range(7), strict=True))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
DAY_S = 86400
LAST = "l"


def numbers(text: str, low: int, high: int, names: dict[str, int] | None = None) -> set[int]:
    """Return the values of one field without its ``L`` and ``#`` items."""
    found: set[int] = set()
    for item in text.lower().split(","):
        if LAST in item.replace("jul", "").replace("sun", "") or "#" in item:
            continue
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        start, end = low, high
        if span != "*":
            start = end = number(first, names)
            if last:
                end = number(last, names)
            elif step:
                end = high
        # Sunday is 0 at the start of a range and 7 at its end; a range may run over the end.
        if names is WEEKDAYS and first == "7":
            start, end = 0, end % 7 if last or not step else end
        if end < start:
            end += high - low + 1
        found.update((value - low) % (high - low + 1) + low for value in range(start, end + 1, int(step or 1)))
    return found


def number(word: str, names: dict[str, int] | None) -> int:
    """Return the value of a number or a name."""
    return names[word] if names and word in names else int(word)


def nth_weekdays(text: str) -> set[tuple[int, int]]:
    """Return the ``5#3`` and ``5L`` of a day of week; the last one as 0."""
    found = set()
    for item in text.lower().split(","):
        if "#" in item:
            day, _, place = item.partition("#")
            found.add((number(day, WEEKDAYS) % 7, int(place)))
        elif item.endswith(LAST):
            found.add((number(item[:-1], WEEKDAYS) % 7, 0))
    return found


@dataclass
class Vixie:
    """One expression; ``seconds`` says that the first of six fields is the second."""

    text: str
    seconds: bool = False
    ticks: set[int] = field(init=False)
    interval: bool = field(init=False)
    known_days: dict[int, bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Read the fields."""
        parts = self.text.split()
        second = parts.pop(0) if self.seconds else "0"
        minute, hour, self.day, month, self.weekday = parts
        self.tick_s = 1 if self.seconds else 60
        self.ticks = {
            (h * 3600 + m * 60 + s) // self.tick_s
            for h in numbers(hour, 0, 23)
            for m in numbers(minute, 0, 59)
            for s in numbers(second, 0, 59)
        }
        self.interval = minute[0] == "*" or hour[0] == "*"
        self.days = numbers(self.day, 1, 31)
        self.last_day = LAST in self.day.lower().split(",")
        self.months = numbers(month, 1, 12, MONTHS)
        self.weekdays = {value % 7 for value in numbers(self.weekday, 0, 6, WEEKDAYS)}
        self.nth = nth_weekdays(self.weekday)

    def on(self, day: date) -> bool:
        """Tell whether this is one of the days."""
        if day.month not in self.months:
            return False
        length = calendar.monthrange(day.year, day.month)[1]
        weekday = day.isoweekday() % 7
        by_month = day.day in self.days or (self.last_day and day.day == length)
        places = {(weekday, (day.day - 1) // 7 + 1)} | ({(weekday, 0)} if day.day + 7 > length else set())
        by_week = weekday in self.weekdays or bool(places & self.nth)
        if self.day[0] == "*" or self.weekday[0] == "*":
            return by_month and by_week
        return by_month or by_week

    def at(self, tick: int) -> bool:
        """Tell whether the clock may show this number of minutes (or seconds) since 1970."""
        day, of_day = divmod(tick, DAY_S // self.tick_s)
        if of_day not in self.ticks:
            return False
        if day not in self.known_days:
            self.known_days[day] = self.on(date.fromordinal(EPOCH_ORDINAL + day))
        return self.known_days[day]


def shown(zone: ZoneInfo, start: datetime, end: datetime, tick_s: int = 60) -> list[tuple[int, int]]:
    """Return, for every minute (or second) of UTC, it and what the clock shows, both counted from 1970."""
    first, last = (int((instant - EPOCH).total_seconds()) for instant in (start, end))
    found = []
    for instant_s in range(first, last + 1, tick_s):
        ahead = datetime.fromtimestamp(instant_s, zone).utcoffset() or timedelta(0)
        found.append((instant_s // tick_s, (instant_s + int(ahead.total_seconds())) // tick_s))
    return found


def fires(rule: Vixie, clock: Iterable[tuple[int, int]]) -> list[datetime]:
    """Return when the rule fires while the clock shows this; the first of them only says where it stood."""
    found = []
    highest = None
    for (_, before), (instant, wall) in pairwise(clock):
        highest = before if highest is None else highest
        if rule.interval:
            due = rule.at(wall)
        else:
            # A time that was shown before is past. Times that were skipped are all due now.
            due = any(rule.at(tick) for tick in range(highest + 1, wall + 1))
            highest = max(highest, wall)
        if due:
            found.append(EPOCH + timedelta(seconds=instant * rule.tick_s))
    return found


def utc_fires(rule: Vixie, after: datetime, until: date) -> Iterator[datetime]:
    """Yield when the rule fires in UTC, day by day; ends with the day before ``until``."""
    start_s = int((after - EPOCH).total_seconds())
    ticks = sorted(rule.ticks)
    for ordinal in range(after.date().toordinal(), until.toordinal()):
        if rule.on(date.fromordinal(ordinal)):
            midnight_s = (ordinal - EPOCH_ORDINAL) * DAY_S
            for tick in ticks:
                if midnight_s + tick * rule.tick_s > start_s:
                    yield EPOCH + timedelta(seconds=midnight_s + tick * rule.tick_s)
