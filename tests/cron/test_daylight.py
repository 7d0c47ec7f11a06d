"""Clock changes: a fixed time fires once a day, an interval keeps its cadence."""

from __future__ import annotations

import itertools

import pytest

from pgtasks.cron import CronSchedule
from tests.cron.instants import local_day, utc

NEW_YORK, BERLIN, HAVANA = "America/New_York", "Europe/Berlin", "America/Havana"


@pytest.mark.parametrize(
    ("expression", "zone", "day", "times"),
    [
        ("30 1 * * *", NEW_YORK, "2025-11-02", ["05:30"]),
        ("0 2 * * *", BERLIN, "2025-10-26", ["00:00"]),
        ("0 0 * * *", HAVANA, "2025-11-02", ["04:00"]),
        ("15,45 1,2 * * *", NEW_YORK, "2025-11-02", ["05:15", "05:45", "07:15", "07:45"]),
        ("0 1-3 * * *", NEW_YORK, "2025-11-02", ["05:00", "07:00", "08:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2025-04-06", ["14:45"]),
    ],
)
def test_a_fixed_time_in_the_repeated_hour_fires_once(expression: str, zone: str, day: str, times: list[str]) -> None:
    """It fires the first time that the clock shows it."""
    fires = local_day(CronSchedule(expression, zone), day)
    assert [f"{fire:%H:%M}" for fire in fires] == times


@pytest.mark.parametrize(
    ("expression", "zone", "after", "fires"),
    [
        ("30 2 * * *", NEW_YORK, "2025-03-09T01:00-05:00", ["2025-03-09T03:00-04:00", "2025-03-10T02:30-04:00"]),
        ("0 2 * * *", NEW_YORK, "2025-03-09T01:00-05:00", ["2025-03-09T03:00-04:00", "2025-03-10T02:00-04:00"]),
        ("15,45 2 * * *", NEW_YORK, "2025-03-09T01:00-05:00", ["2025-03-09T03:00-04:00", "2025-03-10T02:15-04:00"]),
        ("0 2,3 * * *", NEW_YORK, "2025-03-09T01:00-05:00", ["2025-03-09T03:00-04:00", "2025-03-10T02:00-04:00"]),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00-03:00", ["2018-11-04T01:00-02:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-05T00:00+10:30", ["2025-10-05T02:30+11:00"]),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T11:00-10:00", ["2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00"]),
    ],
)
def test_a_fixed_time_in_the_skipped_hour_is_not_lost(expression: str, zone: str, after: str, fires: list[str]) -> None:
    """It fires at the first instant after the gap, once for all that the gap has swallowed."""
    assert CronSchedule(expression, zone).upcoming(len(fires), utc(after)) == [utc(fire) for fire in fires]


@pytest.mark.parametrize(
    ("expression", "day", "count"),
    [
        ("0 * * * *", "2025-11-02", 25),
        ("*/15 * * * *", "2025-11-02", 100),
        ("* * * * *", "2025-11-02", 1500),
        ("0 * * * *", "2025-03-09", 23),
        ("*/15 * * * *", "2025-03-09", 92),
        ("* * * * *", "2025-03-09", 1380),
        ("0 */2 * * *", "2025-03-09", 11),
        ("*/30 2 * * *", "2025-03-09", 0),
    ],
)
def test_an_interval_keeps_its_cadence(expression: str, day: str, count: int) -> None:
    """The day of 25 hours has more fires, that of 23 fewer, and none comes out of order."""
    schedule = CronSchedule(expression, NEW_YORK)
    fires = local_day(schedule, day)
    assert schedule.is_interval
    assert len(fires) == count
    assert all(before < after for before, after in itertools.pairwise(fires))


@pytest.mark.parametrize(
    ("expression", "zone", "after", "fires"),
    [
        ("0 12 * * 0", BERLIN, "2022-03-24T12:00+01:00", ["2022-03-27T12:00+02:00", "2022-04-03T12:00+02:00"]),
        ("5 0 * * *", "Europe/Paris", "2019-10-27T01:05+02:00", ["2019-10-28T00:05+01:00"]),
        ("30 1 * * *", NEW_YORK, "2025-11-01T12:00", ["2025-11-02T05:30", "2025-11-03T06:30", "2025-11-04T06:30"]),
        ("30 1 * * *", NEW_YORK, "2025-11-02T05:30", ["2025-11-03T06:30"]),
        ("30 1 * * *", NEW_YORK, "2025-11-02T06:15", ["2025-11-03T06:30"]),
        ("0 2 * * *", NEW_YORK, "2025-11-02T06:15", ["2025-11-02T07:00"]),
        (
            "*/30 1 1-7 11 */7",
            NEW_YORK,
            "2025-01-01T12:00",
            ["2025-11-02T05:00", "2025-11-02T05:30", "2025-11-02T06:00"],
        ),
        ("*/30 2 9 3 *", NEW_YORK, "2024-06-01T12:00", ["2026-03-09T06:00", "2026-03-09T06:30"]),
        ("0 3 29 2 *", BERLIN, "2025-06-01", ["2028-02-29T02:00"]),
    ],
)
def test_the_days_around_a_change_are_ordinary(expression: str, zone: str, after: str, fires: list[str]) -> None:
    """What is not in the changed hour keeps its time on the clock."""
    assert CronSchedule(expression, zone).upcoming(len(fires), utc(after)) == [utc(fire) for fire in fires]


@pytest.mark.parametrize(
    ("expression", "is_interval"),
    [
        ("* 2 * * *", True),
        ("*/30 2 * * *", True),
        ("30 */2 * * *", True),
        ("@hourly", True),
        ("@every 90s", True),
        ("@daily", False),
        ("0-59 2 * * *", False),
        ("0 0-23 * * *", False),
        ("30 2 */2 * */2", False),
    ],
)
def test_minute_or_hour_with_a_star_makes_an_interval(expression: str, is_interval: bool) -> None:  # noqa: FBT001 - a table's column
    """The star itself decides, and not whether every value is allowed."""
    assert CronSchedule(expression, NEW_YORK).is_interval is is_interval


def test_seconds_follow_the_same_rules() -> None:
    """Six fires of a skipped minute come as one, those of a repeated minute come once."""
    schedule = CronSchedule("*/10 30 2 * * *", BERLIN, seconds=True)
    assert local_day(schedule, "2025-03-30") == [utc("2025-03-30T03:00+02:00")]
    assert [f"{fire:%H:%M:%S}" for fire in local_day(schedule, "2025-10-26")] == [
        *("00:30:00", "00:30:10", "00:30:20", "00:30:30", "00:30:40", "00:30:50")
    ]
    assert len(local_day(CronSchedule("0 */15 * * * *", BERLIN, seconds=True), "2025-10-26")) == 100
