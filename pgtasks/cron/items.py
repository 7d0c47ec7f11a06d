"""One field of a cron expression: a list of values, ranges and steps, turned into its values."""

from __future__ import annotations

import difflib
import re

from pgtasks.cron.fields import DAY, LAST, WEEKDAY, Choice, Field
from pgtasks.errors import ScheduleError

NTH_MAX = 5
SUNDAY, SUNDAY_TOO = 0, 7
STAR = re.compile(r"\*(?:/(\d+))?", re.ASCII)
ITEM = re.compile(r"(\d+|[a-z]+)(?:-(\d+|[a-z]+))?(?:/(\d+))?", re.ASCII)
NTH = re.compile(r"(\d+|[a-z]+?)(?:#(\d+)|(l))", re.ASCII)
# What other dialects allow and this one does not, with what to do instead.
FOREIGN = (
    (re.compile(r"\?"), "`?` is not used here; write `*`"),
    (re.compile(r"(?:l|\d+)w|w\d+"), "`W`, the nearest working day, is not supported; choose a day of the month"),
    (re.compile(r"l-\d+"), "days counted from the end are not supported; `L` is the last day of the month"),
    (re.compile(r"l\d"), "the last weekday is written with its L behind it, such as `5L` for the last Friday"),
    (re.compile(r"h(?:[(/].*)?"), "`H` is not supported; choose a number, and spread fires with jitter"),
    (re.compile(r"r(?:[(/].*)?"), "`R` would differ on every machine; choose a number"),
)


def choice(field: Field, text: str) -> Choice:
    """Read one field, in lower case.

    Raises ScheduleError when it can not be read.
    """
    values: set[int] = set()
    nth: set[tuple[int, int]] = set()
    last_day = False
    listed = text.split(",")
    for item in listed:
        if not item:
            raise wrong(field, f"`{text}` has a comma with nothing beside it")
        if item == "*" and len(listed) > 1:
            raise wrong(field, f"`{text}`: `*` already is every value; write it alone, or give it a step, `*/2`")
        if field is DAY and item == "l":
            last_day = True
        elif field is WEEKDAY and (found := NTH.fullmatch(item)):
            nth.add(nth_weekday(found))
        else:
            values.update(item_values(field, item))
    star = STAR.fullmatch(text)
    return Choice(
        values=tuple(sorted(values)),
        starred=text.startswith("*"),
        last_day=last_day,
        nth=tuple(sorted(nth)),
        step=int(star[1] or 1) if star else 0,
    )


def item_values(field: Field, item: str) -> list[int]:
    """Give the values of one item of the list: ``*/n``, ``a``, ``a/n``, ``a-b`` or ``a-b/n``."""
    star = STAR.fullmatch(item)
    if star:
        return stretch(field, field.low, field.high, step_of(field, item, star[1]))
    refuse_foreign(field, item)
    match = ITEM.fullmatch(item)
    if match is None:
        raise wrong(field, not_understood(field, item))
    first_word, last_word, step_word = match.groups()
    first = value(field, first_word)
    step = step_of(field, item, step_word)
    if last_word is None:
        return stretch(field, first, first if step_word is None else field.high, step)
    last = value(field, last_word)
    if field is WEEKDAY and last_word == str(SUNDAY_TOO) and first_word != str(SUNDAY_TOO):
        last = SUNDAY_TOO  # 0-7 is the whole week, 7-7 is Sunday
    return stretch(field, first, last, step, item)


def stretch(field: Field, first: int, last: int, step: int, item: str = "") -> list[int]:
    """Give every step-th value from the first to the last, over the end of the field if it wraps."""
    if first > last and not field.wraps:
        before, after = f"{field.low}-{last}", f"{first}-{field.high}"
        raise wrong(field, f"`{item}` runs backwards; did you mean `{last}-{first}`, or `{before},{after}`?")
    if first > last:
        last += field.size
    return [(number - field.low) % field.size + field.low for number in range(first, last + 1, step)]


def value(field: Field, word: str) -> int:
    """Read a number or a name."""
    if not word.isdecimal():
        if word in field.words:
            return field.low + field.words.index(word)
        raise wrong(field, not_understood(field, word))
    number = int(word)
    if field is WEEKDAY and number == SUNDAY_TOO:
        return SUNDAY
    if not field.low <= number <= field.high:
        high = SUNDAY_TOO if field is WEEKDAY else field.high
        raise wrong(field, f"{word} is not between {field.low} and {high}{wrapped(field, number)}")
    return number


def wrapped(field: Field, number: int) -> str:
    """Ask for the value that people mean by 24 hours and 60 minutes."""
    return f"; did you mean {field.low}?" if field.low == 0 and number == field.high + 1 else ""


def step_of(field: Field, item: str, word: str | None) -> int:
    """Read the step; one larger than the field would silently mean something else."""
    if word is None:
        return 1
    step = int(word)
    if not 1 <= step <= field.size:
        longer = "; for a longer period there is `@every`, such as `@every 90m`" if step else ""
        raise wrong(field, f"the step of `{item}` is not between 1 and {field.size}{longer}")
    return step


def nth_weekday(match: re.Match[str]) -> tuple[int, int]:
    """Read ``5#3`` or ``fri#3``, the third Friday of the month, or ``5L``, the last one."""
    day, number, _last = match.groups()
    weekday = value(WEEKDAY, day)
    if number is None:
        return weekday, LAST
    if not 1 <= int(number) <= NTH_MAX:
        raise wrong(WEEKDAY, f"`{match[0]}` is not one of the 1st to {NTH_MAX}th; the last one is `{day}L`")
    return weekday, int(number)


def refuse_foreign(field: Field, item: str) -> None:
    """Refuse what other dialects allow, with what to write here."""
    for pattern, advice in FOREIGN:
        if pattern.fullmatch(item):
            raise wrong(field, advice)


def not_understood(field: Field, item: str) -> str:
    """Say what is wrong with an item, and what was probably meant."""
    close = difflib.get_close_matches(item[:3], field.words, n=1) if item.isalpha() else []
    hint = f"; did you mean `{close[0]}`?" if close else ""
    if item.startswith("-"):
        hint = "; numbers have no sign"
    elif item.startswith("*") or item.endswith("/*"):
        hint = "; `*` takes only a step, such as `*/5`"
    named = f", {' '.join(field.words)}" if field.words and not hint else ""
    return f"`{item}` is not a value, a range `a-b` or a step `*/n`{named}{hint}"


def wrong(field: Field, message: str) -> ScheduleError:
    """Make the error that names this field."""
    return ScheduleError(message, field=field.name)
