"""Cron expressions to try: those that people write, and random ones."""

from __future__ import annotations

import random

FIXED = (
    *("0 0 * * *", "30 1 * * *", "30 2 * * *", "0 2 * * *", "0 1-3 * * *", "15,45 1,2 * * *", "5 0 * * *"),
    *("0 3 * * 0", "59 23 * * *", "0 0 * * 0", "30 0 1 * *", "0 12 L * *", "7 22-2 * * *", "0-59/20 0-4 * * *"),
)
INTERVALS = ("0 * * * *", "*/30 * * * *", "*/20 0-4 * * *", "* 2 * * *", "30 */2 * * *", "15 * * * 0", "*/45 1-3 * * *")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def item(rng: random.Random, low: int, high: int, *, wraps: bool) -> str:
    """Return one item of a field: a value, a range or a step."""
    first, last = rng.randint(low, high), rng.randint(low, high)
    if not wraps:
        first, last = sorted((first, last))
    step = rng.randint(1, min(12, high - low))
    return rng.choice([f"{first}", f"{first}", f"{first}-{last}", f"{first}-{last}/{step}", f"{first}/{step}"])


def column(rng: random.Random, low: int, high: int, *, star: float = 0.4, wraps: bool = False) -> str:
    """Return one field: a star, a star with a step, or a list."""
    drawn = rng.random()
    if drawn < star:
        return "*"
    if drawn < star + 0.15:
        return f"*/{rng.randint(1, high - low + 1)}"
    items = [item(rng, low, high, wraps=wraps) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    if rng.random() < 0.1:
        items.append(f"*/{rng.randint(2, high - low)}")
        rng.shuffle(items)
    return ",".join(items)


def day_column(rng: random.Random) -> str:
    """Return a day of month, sometimes with the last day."""
    text = column(rng, 1, 31, star=0.35)
    if rng.random() < 0.05:  # all days but one
        but = rng.randint(2, 30)
        text = f"1-{but - 1},{but + 1}-31"
    return rng.choice(["L", f"{text},L"]) if text != "*" and rng.random() < 0.15 else text


def weekday_column(rng: random.Random) -> str:
    """Return a day of week, sometimes with nth weekdays or names."""
    text = column(rng, 0, 7, star=0.35, wraps=True) if rng.random() < 0.6 else column(rng, 0, 6, star=0.6, wraps=True)
    if text.startswith("*/"):
        text = f"*/{rng.randint(1, 7)}"
    drawn = rng.random()
    if drawn < 0.15:
        nth = f"{rng.choice([*WEEKDAYS, *'01234567'])}{rng.choice(['#1', '#2', '#3', '#4', '#5', 'L'])}"
        return rng.choice([nth, f"{text},{nth}"]) if text != "*" else nth
    if drawn < 0.3:
        return f"{rng.choice(WEEKDAYS)}-{rng.choice(WEEKDAYS)}"
    return text


def random_expression(rng: random.Random, *, night: bool = False) -> str:
    """Return an expression of five fields; ``night`` prefers the hours in which clocks are changed."""
    if night:
        hour = rng.choice(["*", "0", "1", "2", "3", "0-3", "1,2", "23-1", "*/2", "22-4/3", "0,12", "2-4,23"])
        minute = rng.choice(["0", "30", "*/20", "59", "15,45", "0/25", "1", "*/30", "0-40/20", "45", "29", "31"])
        day = rng.choice(["*", "*", "*", "*/2", "L", "1-15"])
        weekday = rng.choice(["*", "*", "*", "sun", "0,6", "5-7", "sunL", "*/3"])
        return f"{minute} {hour} {day} * {weekday}"
    month = column(rng, 1, 12, star=0.5, wraps=True)
    if rng.random() < 0.1:
        month = f"{rng.choice(MONTHS)}-{rng.choice(MONTHS)}"
    hour = column(rng, 0, 23, wraps=True)
    return f"{column(rng, 0, 59)} {hour} {day_column(rng)} {month} {weekday_column(rng)}"
