"""A schedule in English, with the rules that decide what people most often get wrong."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pgtasks.cron.fields import DAY, HOUR, LAST, MINUTE, MONTH, SECOND, WEEKDAY, Choice, Every, Expression, Field

TIMES_MAX = 6
# So many values are named one by one; of more with one step between them, the first and the last are.
NAMED_MAX = 4
RUN_MIN = 3
EVERY = {f"every {field.name}" for field in (MINUTE, HOUR)}
MONTH_WORDS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAY_WORDS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
ORDINALS = {1: "1st", 2: "2nd", 3: "3rd", 21: "21st", 22: "22nd", 23: "23rd", LAST: "last"}
UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def describe(rule: Expression | Every, timezone: str) -> str:
    """Say when a rule fires in this zone, one sentence for each thing to know."""
    if isinstance(rule, Every):
        return f"Every {period(rule.period_s)}, counted from 1970-01-01 00:00 UTC."
    when = f"{time(rule)}{dates(rule)} ({timezone})."
    sentences = [when[0].upper() + when[1:], day_rule(rule), clock_rule(rule) if timezone != "UTC" else ""]
    return " ".join(sentence for sentence in sentences if sentence)


def period(period_s: int) -> str:
    """Write a period in the largest units, such as 1 hour 30 minutes."""
    words, rest = [], period_s
    for unit_s, unit in UNITS:
        count, rest = divmod(rest, unit_s)
        if count:
            words.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(words).removeprefix("1 ") if len(words) == 1 else " ".join(words)


def time(rule: Expression) -> str:
    """Say at what time of the day."""
    minutes, hours, seconds = rule.minute.values, rule.hour.values, rule.second.values
    if not rule.is_interval and len(minutes) * len(hours) * len(seconds) <= TIMES_MAX:
        shape = "{:02}:{:02}:{:02}" if rule.with_seconds else "{:02}:{:02}"
        times = [shape.format(hour, minute, second) for hour in hours for minute in minutes for second in seconds]
        return f"at {joined(times)}"
    parts = [part(MINUTE, rule.minute), part(HOUR, rule.hour)]
    if rule.with_seconds:
        parts.insert(0, part(SECOND, rule.second))
    # "Every 15 minutes of every hour" says no more than its first half.
    while len(parts) > 1 and parts[-1] in EVERY and parts[-2].startswith("every"):
        parts.pop()
    return " of ".join(parts) if parts[0].startswith("every") else "at " + " of ".join(parts)


def part(field: Field, choice: Choice) -> str:
    """Say which minutes, hours or seconds; a step that fits the field is a pace."""
    if choice.covers(field):
        return f"every {field.name}"
    if choice.step and field.size % choice.step == 0 and choice.step < field.size:
        return f"every {choice.step} {field.name}s" if field is not HOUR else f"every {ordinal(choice.step)} hour"
    return counted(field.name, choice.values)


def counted(noun: str, values: Sequence[int]) -> str:
    """Write a noun with its numbers, such as minutes 5, 20 and 35."""
    return f"{noun}{'s' if len(values) > 1 else ''} {series(values)}"


def dates(rule: Expression) -> str:
    """Say on which days of which months."""
    month_days, weekdays = days_of_month(rule.day), days_of_week(rule.weekday)
    if month_days and weekdays and rule.either_day:
        days = f" on {month_days} of the month or on {weekdays}"
    elif month_days and weekdays:
        days = f" on {month_days} of the month, if it is {days_of_week(rule.weekday, 'or')}"
    elif month_days or weekdays:
        days = f" on {month_days} of the month" if month_days else f" on {weekdays}"
    else:
        days = "" if rule.is_interval else " every day"
    months = "" if rule.month.covers(MONTH) else f" in {series(rule.month.values, ('', *MONTH_WORDS))}"
    return days + months


def days_of_month(choice: Choice) -> str:
    """Say which days of the month, or nothing if any is right."""
    if choice.covers(DAY):
        return ""
    numbered = counted("day", choice.values) if choice.values else ""
    return " and ".join(filter(None, [numbered, "the last day" if choice.last_day else ""]))


def days_of_week(choice: Choice, word: str = "and") -> str:
    """Say which days of the week, or nothing if any is right."""
    if choice.covers(WEEKDAY):
        return ""
    plain = [series(choice.values, WEEKDAY_WORDS, word)] if choice.values else []
    nth = [f"the {ordinal(number)} {WEEKDAY_WORDS[weekday]} of the month" for weekday, number in choice.nth]
    return joined([*plain, *nth], word)


def day_rule(rule: Expression) -> str:
    """Say whether one of day of month and day of week is enough, where both are given."""
    if not (days_of_month(rule.day) and days_of_week(rule.weekday)):
        return ""
    if rule.either_day:
        return "Day of month or day of week is enough, because neither field starts with `*`."
    return "Day of month and day of week must both match, because one of the fields starts with `*`."


def clock_rule(rule: Expression) -> str:
    """Say what happens where the clock is changed."""
    if rule.is_interval:
        return "It keeps its pace in real time when the clock is changed."
    return (
        "When the clock is changed, a skipped time fires right after the gap, a repeated one fires the first time only."
    )


def series(values: Sequence[int], words: Sequence[str] = (), word: str = "and") -> str:
    """Write numbers, or the words for them: 9 to 17, or 1, 3, ... 31, or 5, 20 and 35."""
    named = [words[value] if words else str(value) for value in values]
    steps = {after - before for before, after in itertools.pairwise(values)}
    if len(values) > NAMED_MAX and len(steps) == 1 and steps != {1}:
        return f"{named[0]}, {named[1]}, ... {named[-1]}"
    runs: list[list[int]] = []
    for position, value in enumerate(values):
        if position and value == values[position - 1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return joined([text for run in runs for text in written(run, named)], word)


def written(run: Sequence[int], named: Sequence[str]) -> list[str]:
    """Write neighbours as a range if there are enough of them."""
    if len(run) < RUN_MIN:
        return [named[position] for position in run]
    return [f"{named[run[0]]} to {named[run[-1]]}"]


def joined(texts: Sequence[str], word: str = "and") -> str:
    """Join texts with commas, the last one with a word."""
    return f"{', '.join(texts[:-1])} {word} {texts[-1]}" if len(texts) > 1 else "".join(texts)


def ordinal(number: int) -> str:
    """Write 3rd for 3, and last for the last one."""
    return ORDINALS.get(number, f"{number}th")
