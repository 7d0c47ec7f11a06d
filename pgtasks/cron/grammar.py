"""From the text of a cron expression to its values; refuses what could be meant in two ways.

::

    expression = fields | "@hourly" | "@daily" | ... | "@every" period
    fields     = [second] minute hour day-of-month month day-of-week
    field      = item {"," item}
    item       = "*" ["/" step] | value ["/" step] | value "-" value ["/" step]
               | "L"                                (day-of-month: the last day)
               | value "#" digit | value "L"        (day-of-week: the nth, the last one)
    value      = number | name
    period     = [n "d"] [n "h"] [n "m"] [n "s"]

Fields are separated by spaces or tabs. Names and letters may be written in either case. Every
refusal is a ScheduleError that names the field and, where it can tell, what was meant.
"""

from __future__ import annotations

import difflib
import re

from pgtasks.cron import days, items
from pgtasks.cron.fields import DAY, FIVE, SIX, Every, Expression
from pgtasks.errors import ScheduleError

EXPRESSION_CHARS_MAX = 256
PERIOD_S_MAX = 366 * 86400
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
STRANGE = re.compile(r"[^0-9A-Za-z*/,#?@ \t-]")
PERIOD = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
UNIT_S = (86400, 3600, 60, 1)
FIELD_NAMES = "minute hour day-of-month month day-of-week"
# How many fields other dialects have: Quartz puts seconds first and a year last.
WITH_SECONDS, WITH_YEAR = 6, 7


def parse(text: str, *, seconds: bool = False) -> Expression | Every:
    """Read an expression. ``seconds`` asks for six fields, the second first.

    Raises ScheduleError when the text is not an expression, or one that never fires.
    """
    stripped = clean(text)
    if stripped.startswith("@"):
        return nickname(stripped)
    words = stripped.split()
    check_count(words, seconds=seconds)
    expression = expression_of(words)
    if not days.alternatives(expression):
        raise ScheduleError(f"`{stripped}` never fires: {days.why_never(expression)}", field=DAY.name)
    return expression


def clean(text: str) -> str:
    """Give the text without the space around it, or refuse it as a whole."""
    if not isinstance(text, str):
        raise ScheduleError(f"a cron expression is a string, not {type(text).__name__}", field="expression")
    if len(text) > EXPRESSION_CHARS_MAX:
        raise ScheduleError(
            f"{len(text)} characters; at most {EXPRESSION_CHARS_MAX} are allowed. Use ranges and steps, "
            "or make two schedules",
            field="expression",
        )
    strange = STRANGE.search(text)
    if strange:
        raise ScheduleError(strange_message(strange[0], strange.start()), field="expression")
    stripped = text.strip(" \t")
    if not stripped:
        raise ScheduleError(f"it is empty; write the five fields {FIELD_NAMES}, or @daily", field="expression")
    return stripped


def strange_message(character: str, position: int) -> str:
    """Say which character does not belong, and what to type for it if that is clear."""
    if character.isdecimal():
        return f"the digit {character!r} at position {position + 1} is not ASCII; write {int(character)}"
    if character.isspace():
        return f"the space {character!a} at position {position + 1} separates nothing here; use a plain space"
    return f"the character {character!a} at position {position + 1} has no meaning in a cron expression"


def check_count(words: list[str], *, seconds: bool) -> None:
    """Refuse a wrong number of fields, and never guess which one is missing."""
    count = len(words)
    if count == len(SIX if seconds else FIVE):
        return
    message = f"{count} field{'s' if count != 1 else ''}: "
    if seconds:
        repair = ["0", *words] if count == len(FIVE) else words[:-1]
        message += f"seconds=True needs 6, second {FIELD_NAMES}"
    elif count == WITH_SECONDS:
        repair = words[1:]
        message += "seconds first needs seconds=True"
    elif count == WITH_YEAR:
        repair = words[1:-1]
        message += f"5 are needed, {FIELD_NAMES}, and there is no field for the year"
    else:
        repair = words + ["*"] * (len(FIVE) - count)
        message += f"5 are needed, {FIELD_NAMES}"
    raise ScheduleError(message + meant(repair, seconds=seconds), field="expression")


def meant(words: list[str], *, seconds: bool) -> str:
    """Ask whether this was meant, if it is an expression at all."""
    if len(words) != len(SIX if seconds else FIVE):
        return ""
    text = " ".join("*" if word == "?" else word for word in words)
    try:
        parse(text, seconds=seconds)
    except ScheduleError:
        return ""
    return f"; did you mean `{text}`?"


def nickname(text: str) -> Expression | Every:
    """Read ``@daily`` and its like."""
    name, *rest = text.lower().split()
    if name == "@every":
        return every(rest[0] if len(rest) == 1 else "", text)
    if name in ALIASES and not rest:
        return expression_of(ALIASES[name].split())
    if name in ALIASES:
        raise ScheduleError(f"{name} stands alone; remove the rest of `{text}`", field="expression")
    if name == "@reboot":
        raise ScheduleError("@reboot has no time; run the task when your program starts", field="expression")
    close = difflib.get_close_matches(name, [*ALIASES, "@every"], n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(ALIASES)} and @every"
    raise ScheduleError(f"{name} is not known; {hint}", field="expression")


def every(period: str, text: str) -> Every:
    """Read the period of ``@every 1h30m``."""
    match = PERIOD.fullmatch(period) if period else None
    if match is None:
        raise ScheduleError(
            f"`{text}` is not a period; write whole days, hours, minutes and seconds in this order, "
            "such as `@every 90s` or `@every 1h30m`",
            field="expression",
        )
    period_s = sum(int(number) * unit_s for number, unit_s in zip(match.groups("0"), UNIT_S, strict=True))
    if not 1 <= period_s <= PERIOD_S_MAX:
        raise ScheduleError(
            f"`{text}` is {period_s} seconds; a period lasts from 1 second to {PERIOD_S_MAX // 86400} days",
            field="expression",
        )
    return Every(period_s)


def expression_of(words: list[str]) -> Expression:
    """Read five fields, or six with the second first."""
    fields = SIX if len(words) == len(SIX) else FIVE
    *second, minute, hour, day, month, weekday = [
        items.choice(field, word.lower()) for field, word in zip(fields, words, strict=True)
    ]
    if not second:
        return Expression(minute, hour, day, month, weekday)
    return Expression(minute, hour, day, month, weekday, second=second[0], with_seconds=True)
