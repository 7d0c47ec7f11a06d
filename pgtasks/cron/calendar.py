"""The next wall time of an expression: croniter computes it, from input it gets right.

What croniter 7.0.0 gets wrong by itself, and what is done here instead, so that it never sees it:

- Its rule for day of month with day of week is not Vixie cron's, and it cannot combine an nth
  weekday with a day of the month or with plain weekdays, and it takes 30 numbered days and the
  last one for all days: each alternative gets a croniter of its own, in which day of month and
  day of week must both match, and the earliest answer counts.
- It searches for 50 years before it says that 30 February never comes: it is not asked.
- Steps, ranges over the end, equal ranges and ``7`` are read differently from what is written
  down in the grammar: it is given plain lists of values, and ``*`` for all of them.
- Its handling of clock changes fires twice: it is given wall times without any time zone.
"""

from __future__ import annotations

import copy
from datetime import datetime
from functools import lru_cache
from typing import Any

from pgtasks.cron import days
from pgtasks.cron.fields import DAY, HOUR, LAST, MINUTE, MONTH, SECOND, WEEKDAY, Choice, Expression, Field

# The longest wait between two days of an expression is 40 years: 29 February on one weekday,
# around a year such as 2100. croniter would give up after 50 by itself.
SEARCH_YEARS_MAX = 50
PREPARED_MAX = 1024


def next_wall(expression: Expression, wall: datetime) -> datetime:
    """Give the first wall time of the expression after this one; both are naive."""
    found = []
    for prototype in prepared(expression):
        # A croniter moves when it is asked, and other threads ask the same prototype.
        walker = copy.copy(prototype)
        found.append(walker.get_next(datetime, start_time=wall))
    earliest: datetime = min(found)
    return earliest


@lru_cache(maxsize=PREPARED_MAX)
def prepared(expression: Expression) -> tuple[Any, ...]:
    """Give the croniters whose earliest answer is the expression's."""
    from croniter import croniter  # type: ignore[import-untyped]  # it ships no types

    start = datetime(1970, 1, 1)  # noqa: DTZ001 - wall times are naive
    return tuple(
        croniter(text, start, day_or=False, max_years_between_matches=SEARCH_YEARS_MAX) for text in texts(expression)
    )


def texts(expression: Expression) -> list[str]:
    """Give the expressions for croniter; the second stands last there."""
    minute, hour = listed(MINUTE, expression.minute), listed(HOUR, expression.hour)
    month, second = listed(MONTH, expression.month), listed(SECOND, expression.second)
    end = f" {second}" if expression.with_seconds else ""
    return [
        f"{minute} {hour} {listed(DAY, day)} {month} {listed(WEEKDAY, weekday)}{end}"
        for day, weekday in days.alternatives(expression)
    ]


def listed(field: Field, choice: Choice) -> str:
    """Write a choice as a list of its values, and all of them as ``*``."""
    if choice.covers(field):
        return "*"
    last_day = ["l"] if choice.last_day else []
    nth = [f"l{weekday}" if number == LAST else f"{weekday}#{number}" for weekday, number in choice.nth]
    return ",".join([*(str(number) for number in choice.values), *last_day, *nth])
