"""What the fields of a cron expression are called, and which values they take."""

from __future__ import annotations

from dataclasses import dataclass

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# The most days each month can have, January first.
MONTH_DAYS_MAX = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# Stands for "the last one" where the nth weekday of a month is chosen.
LAST = -1


@dataclass(frozen=True, slots=True)
class Field:
    """One column of an expression: its name, its values, the words for them.

    ``wraps`` says whether a range may run over the end (``fri-mon``). Hours, months and
    weekdays go round in daily life. Minutes and seconds that do are nearly always a slip, and
    a range of days that ran over the end of a month would have a different length each month.
    """

    name: str
    low: int
    high: int
    wraps: bool = False
    words: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Give the number of values."""
        return self.high - self.low + 1


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23, wraps=True)
DAY = Field("day-of-month", 1, 31)
MONTH = Field("month", 1, 12, wraps=True, words=MONTHS)
# 7 is another name for Sunday; the grammar turns it into 0.
WEEKDAY = Field("day-of-week", 0, 6, wraps=True, words=WEEKDAYS)

FIVE = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
SIX = (SECOND, *FIVE)


@dataclass(frozen=True, slots=True)
class Choice:
    """What one field of an expression allows.

    ``starred`` says that the field starts with ``*``: that, and not whether it allows every
    value, is what cron's rules for days and for clock changes ask. ``last_day`` is the ``L`` of
    the day of month. ``nth`` holds weekdays of a month, ``(5, 3)`` for the third Friday and
    ``(5, LAST)`` for the last one. ``step`` is the 15 of a field that is just ``*/15``.
    """

    values: tuple[int, ...]
    starred: bool = False
    last_day: bool = False
    nth: tuple[tuple[int, int], ...] = ()
    step: int = 0

    def covers(self, field: Field) -> bool:
        """Tell whether every value of the field is allowed."""
        return len(self.values) == field.size


@dataclass(frozen=True, slots=True)
class Expression:
    """A cron expression that has been read; without seconds ``second`` allows only 0."""

    minute: Choice
    hour: Choice
    day: Choice
    month: Choice
    weekday: Choice
    second: Choice = Choice((0,))
    with_seconds: bool = False

    @property
    def is_interval(self) -> bool:
        """Tell whether this is a cadence in real time and not a time on the clock.

        The rule is the one of Debian's cron and of cronie: minute or hour starts with ``*``.
        """
        return self.minute.starred or self.hour.starred

    @property
    def either_day(self) -> bool:
        """Tell whether one of day of month and day of week is enough.

        Vixie cron's rule: one is enough when neither starts with ``*``, else both must match.
        """
        return not (self.day.starred or self.weekday.starred)


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed period, counted from 1970-01-01T00:00:00Z so that every machine counts alike."""

    period_s: int
