"""Which days an expression means: the rule that joins day of month and day of week, and what exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pgtasks.cron.fields import DAY, LAST, MONTH_DAYS_MAX, MONTHS, WEEKDAY, Choice, Expression

ANY_DAY = Choice(tuple(range(DAY.low, DAY.high + 1)))
ANY_WEEKDAY = Choice(tuple(range(WEEKDAY.low, WEEKDAY.high + 1)))
NO_NTH: tuple[tuple[int, int], ...] = ()


def alternatives(rule: Expression) -> list[tuple[Choice, Choice]]:
    """Give pairs of day of month and day of week that must both match; any one pair is enough.

    A pair never mixes numbered days with the last one, nor plain weekdays with nth ones. Pairs
    that never come, such as 30 February, are left out, so that an expression without any never fires.
    """
    weekdays = [replace(rule.weekday, nth=NO_NTH)] if rule.weekday.values else []
    weekdays += [replace(rule.weekday, values=())] if rule.weekday.nth else []
    month_days = [replace(rule.day, last_day=False)] if rule.day.values else []
    month_days += [replace(rule.day, values=())] if rule.day.last_day else []
    if rule.either_day:
        pairs = [*((day, ANY_WEEKDAY) for day in month_days), *((ANY_DAY, weekday) for weekday in weekdays)]
    else:
        pairs = [(day, weekday) for day in month_days for weekday in weekdays]
    return [(day, weekday) for day, weekday in pairs if comes(rule.month.values, day, weekday)]


def comes(months: Sequence[int], day: Choice, weekday: Choice) -> bool:
    """Tell whether one of the days ever comes in one of the months.

    Every date falls on every weekday in some year, 29 February included, so that a plain weekday
    cannot rule out a day; "the nth weekday" can.
    """
    return any(has_day(length, day, weekday.nth) for month in months for length in lengths(month))


def lengths(month: int) -> tuple[int, ...]:
    """Give the numbers of days that a month can have."""
    return (28, 29) if MONTHS[month - 1] == "feb" else (MONTH_DAYS_MAX[month - 1],)


def has_day(length: int, day: Choice, nth: tuple[tuple[int, int], ...]) -> bool:
    """Tell whether a month of this length has one of the days, as one of the nth weekdays if there are any."""
    days = {each for each in day.values if each <= length} | ({length} if day.last_day else set())
    return any(not nth or any(is_nth(each, number, length) for _, number in nth) for each in days)


def is_nth(day: int, number: int, length: int) -> bool:
    """Tell whether a day of a month is the nth of its weekday, in a month of this length."""
    return day > length - WEEKDAY.size if number == LAST else (day - 1) // WEEKDAY.size + 1 == number


def why_never(rule: Expression) -> str:
    """Say why an expression without alternatives never fires."""
    months = rule.month.values
    if comes(months, rule.day, ANY_WEEKDAY):
        return f"the {WEEKDAY.name} never falls on these days of the month"
    names = ", ".join(MONTHS[month - 1].capitalize() for month in months)
    return f"{names} has at most {max(MONTH_DAYS_MAX[month - 1] for month in months)} days"
