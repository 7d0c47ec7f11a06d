"""A schedule as a value: what its methods take and give, and that nothing in it moves."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from pgtasks.cron import CronSchedule, calendar
from pgtasks.errors import ScheduleError
from tests.cron.instants import utc

NOON = utc("2025-06-01T12:00")
HOURLY = CronSchedule("0 * * * *")


@pytest.mark.parametrize(
    ("after", "fire"),
    [
        ("2025-06-01T12:00:00", "2025-06-01T13:00"),
        ("2025-06-01T11:59:59.999999", "2025-06-01T12:00"),
        ("2025-06-01T12:00:00.000001", "2025-06-01T13:00"),
        ("2025-06-01T14:30+02:00", "2025-06-01T13:00"),
    ],
)
def test_the_next_fire_is_strictly_later_and_in_utc(after: str, fire: str) -> None:
    """So the last fire can be handed in to get the next; any zone may be handed in."""
    given = HOURLY.next_after(datetime.fromisoformat(after).replace(tzinfo=datetime.fromisoformat(after).tzinfo or UTC))
    assert given == utc(fire)
    assert given.tzinfo is UTC


def test_between_excludes_the_start_and_includes_the_end() -> None:
    """What fell due since the last fire, until now."""
    three = NOON + timedelta(hours=3)
    assert HOURLY.between(NOON, three, 10) == [NOON + timedelta(hours=each) for each in (1, 2, 3)]
    assert HOURLY.between(NOON, three, 2) == [NOON + timedelta(hours=each) for each in (1, 2)]
    assert HOURLY.between(NOON, three, 0) == []
    assert HOURLY.between(three, NOON, 10) == []
    assert HOURLY.between(NOON, NOON, 10) == []


def test_the_latest_fire_is_found_however_many_there_are() -> None:
    """Ten years of seconds cost as much as a minute of them."""
    each_second = CronSchedule("* * * * * *", seconds=True)
    until = NOON + timedelta(days=3650, microseconds=5)
    assert each_second.latest(NOON, until) == until.replace(microsecond=0)
    assert HOURLY.latest(NOON, NOON + timedelta(minutes=59)) is None
    assert HOURLY.latest(NOON, NOON + timedelta(minutes=60)) == NOON + timedelta(hours=1)
    assert HOURLY.latest(NOON, NOON - timedelta(days=1)) is None
    assert HOURLY.latest(NOON, NOON + timedelta(hours=7, seconds=1)) == NOON + timedelta(hours=7)


def test_upcoming_gives_so_many() -> None:
    """None when none are asked for."""
    assert HOURLY.upcoming(2, NOON) == [NOON + timedelta(hours=1), NOON + timedelta(hours=2)]
    assert HOURLY.upcoming(0, NOON) == []


WRONG_INSTANTS = [
    datetime(2025, 1, 1),  # noqa: DTZ001 - wrong on purpose
    datetime(1969, 12, 31, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    "2025-01-01",
    None,
    0,
]


@pytest.mark.parametrize("instant", WRONG_INSTANTS)
@pytest.mark.parametrize("expression", ["0 * * * *", "0 0 * * *", "@every 5m"])
def test_an_instant_that_cannot_be_is_refused(instant: Any, expression: str) -> None:
    """One without a zone could be any, and the years end somewhere."""
    schedule = CronSchedule(expression)
    calls: list[Callable[[], object]] = [
        lambda: schedule.next_after(instant),
        lambda: schedule.upcoming(1, instant),
        lambda: schedule.between(instant, NOON, 1),
        lambda: schedule.latest(instant, NOON),
    ]
    for call in calls:
        with pytest.raises(ScheduleError, match=r"^after: "):
            call()


@pytest.mark.parametrize("number", [-1, 10_001, 1.5, "3", True, None])
def test_a_number_that_cannot_be_is_refused(number: Any) -> None:
    """A call gives at most ten thousand fires."""
    with pytest.raises(ScheduleError, match=r"^n: "):
        HOURLY.upcoming(number, NOON)
    with pytest.raises(ScheduleError, match=r"^limit: "):
        HOURLY.between(NOON, NOON, number)


def test_the_last_year_still_has_a_next_fire() -> None:
    """There is room for the longest wait."""
    assert CronSchedule("0 0 * 2 1#5").next_after(datetime(9900, 1, 1, tzinfo=UTC)).year > 9900


def test_it_is_a_value() -> None:
    """Equal, hashable, frozen, and it goes through pickle."""
    schedule = CronSchedule("0 2 * * *", "Europe/Berlin")
    assert schedule == CronSchedule("0 2 * * *", timezone="Europe/Berlin")
    assert schedule != CronSchedule("0 2 * * *")
    assert len({schedule, CronSchedule("0 2 * * *", "Europe/Berlin")}) == 1
    assert repr(schedule) == "CronSchedule(expression='0 2 * * *', timezone='Europe/Berlin', seconds=False)"
    assert pickle.loads(pickle.dumps(schedule)).next_after(NOON) == schedule.next_after(NOON)  # noqa: S301 - it was pickled here
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.expression = "* * * * *"  # type: ignore[misc]  # wrong on purpose


def test_seconds_is_true_or_false() -> None:
    """A row of a table could hold anything."""
    with pytest.raises(ScheduleError, match=r"^seconds: "):
        CronSchedule("* * * * *", seconds="yes")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("expression", ["30 4 * * 1-5", "0 0 13 * 5#3", "*/5 * L * *"])
def test_an_answer_leaves_no_trace(expression: str) -> None:
    """Threads share what was prepared for an expression, and a croniter moves when it is asked."""
    shared = calendar.prepared(CronSchedule(expression, "Europe/Berlin")._rule)  # noqa: SLF001 - what the threads share
    before = [copy.deepcopy(vars(walker)) for walker in shared]
    CronSchedule(expression, "Europe/Berlin").upcoming(3, NOON)
    assert [vars(walker) for walker in shared] == before


@pytest.mark.parametrize(
    ("expression", "zone"),
    [("30 1 * * *", "America/New_York"), ("*/15 9-17 * * 1-5", "Europe/Berlin"), ("0 0 29 2 *", "UTC")],
)
def test_the_next_fire_costs_less_than_a_millisecond(expression: str, zone: str) -> None:
    """In time of the processor, half of the time, so that a busy machine does not matter."""
    schedule = CronSchedule(expression, zone)
    costs_s = []
    for day in range(101):
        started_s = time.thread_time()
        schedule.next_after(NOON + timedelta(days=day))
        costs_s.append(time.thread_time() - started_s)
    assert sorted(costs_s)[50] < 0.001
