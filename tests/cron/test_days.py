"""Day of month with day of week, nth weekdays, and days that rarely or never come."""

from __future__ import annotations

import itertools

import pytest

from pgtasks.cron import CronSchedule
from pgtasks.cron.calendar import SEARCH_YEARS_MAX
from pgtasks.errors import ScheduleError
from tests.cron.instants import utc

START_2025 = "2024-12-31T23:59"


@pytest.mark.parametrize(
    ("expression", "after", "days"),
    [
        ("0 0 13 * 5", "2025-01-01", ["2025-01-03", "2025-01-10", "2025-01-13", "2025-01-17"]),
        ("0 0 */2 * 1", START_2025, ["2025-01-13", "2025-01-27", "2025-02-03"]),
        ("0 0 15 * */3", START_2025, ["2025-01-15", "2025-02-15", "2025-03-15"]),
        ("0 0 * * */2", "2026-01-01T23:59", ["2026-01-03", "2026-01-04", "2026-01-06", "2026-01-08"]),
        ("0 0 1-31 * 1", START_2025, ["2025-01-01", "2025-01-02", "2025-01-03"]),
        ("0 0 13 * 0-6", START_2025, ["2025-01-01", "2025-01-02", "2025-01-03"]),
        ("0 0 1-31 * */7", START_2025, ["2025-01-05", "2025-01-12"]),
    ],
)
def test_day_of_month_and_day_of_week_follow_vixie(expression: str, after: str, days: list[str]) -> None:
    """One is enough if neither starts with a star; else both must match."""
    assert CronSchedule(expression).upcoming(len(days), utc(after)) == [utc(day) for day in days]


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 * * 5#3", ["2025-01-17", "2025-02-21", "2025-03-21"]),
        ("0 0 * * 1#5", ["2025-03-31", "2025-06-30", "2025-09-29"]),
        ("0 0 1 * 5#3", ["2025-01-17", "2025-02-01", "2025-02-21", "2025-03-01"]),
        ("0 0 L * 5#1", ["2025-01-03", "2025-01-31", "2025-02-07", "2025-02-28"]),
        ("0 0 * * 5L", ["2025-01-31", "2025-02-28", "2025-03-28"]),
        ("0 0 * * friL,mon", ["2025-01-06", "2025-01-13", "2025-01-20", "2025-01-27", "2025-01-31"]),
        ("0 0 */2 * fri#3", ["2025-01-17", "2025-02-21", "2025-03-21"]),
        ("0 0 1,15,L * *", ["2025-01-15", "2025-01-31", "2025-02-01", "2025-02-15", "2025-02-28"]),
        ("0 0 2-31,L 1,3 *", ["2025-01-02"]),
        ("0 0 1-27,29-31,L 2 *", [*(f"2025-02-{day:02}" for day in range(1, 29)), "2026-02-01"]),
        ("0 0 1-27,29-31,L 3 *", [*(f"2025-03-{day:02}" for day in range(1, 32) if day != 28), "2026-03-01"]),
        ("0 0 1-30,L 1 *", [*(f"2025-01-{day:02}" for day in range(2, 32)), "2026-01-01"]),
        ("0 0 * * 7#1", ["2025-01-05", "2025-02-02"]),
    ],
)
def test_nth_weekdays_and_the_last_day(expression: str, days: list[str]) -> None:
    """They join other days by the same rule."""
    assert CronSchedule(expression).upcoming(len(days), utc("2025-01-01")) == [utc(day) for day in days]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("0 0 30 2 *", "Feb has at most 29 days"),
        ("0 0 31 2 *", "Feb has at most 29 days"),
        ("0 0 30,31 2 *", "Feb has at most 29 days"),
        ("* * 31 4 *", "Apr has at most 30 days"),
        ("0 0 31 4,6,9,11 *", "Apr, Jun, Sep, Nov has at most 30 days"),
        ("0 0 */31 2 5#3", "never falls on these days"),
        ("0 0 */31 * mon#2", "never falls on these days"),
    ],
)
def test_days_that_never_come_are_refused(expression: str, reason: str) -> None:
    """This is told when the schedule is made, and not by a scheduler that finds no time."""
    with pytest.raises(ScheduleError, match=reason) as refused:
        CronSchedule(expression)
    assert refused.value.field == "day-of-month"


@pytest.mark.parametrize(
    ("expression", "after", "fire"),
    [
        ("0 0 29 2 *", "2025-01-01", "2028-02-29"),
        ("0 0 29 2 *", "2096-03-01", "2104-02-29"),
        ("0 0 * 2 1#5", "2025-01-01", "2044-02-29"),
        ("0 0 31 2 1", "2025-01-01", "2025-02-03"),
        ("0 0 30 2 1#2", "2025-01-01", "2025-02-10"),
        ("0 0 */28 2 1#5", "2025-01-01", "2044-02-29"),
        ("0 0 30 2 1#5", "2025-01-01", "2044-02-29"),
    ],
)
def test_rare_days_are_found(expression: str, after: str, fire: str) -> None:
    """However many years away they are."""
    assert CronSchedule(expression).next_after(utc(after)) == utc(fire)


def test_no_wait_is_longer_than_the_search() -> None:
    """29 February on one weekday, around a year that is no leap year, is the longest wait there is."""
    for weekday in range(7):
        fires = CronSchedule(f"0 0 * 2 {weekday}#5").between(utc("1990-01-01"), utc("2400-12-31"), 100)
        waits = [after.year - before.year for before, after in itertools.pairwise(fires)]
        assert max(waits) <= 40 < SEARCH_YEARS_MAX
