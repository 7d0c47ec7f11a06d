"""K-10: which slots fire, which were missed, and when the schedule is due again; nothing but arithmetic."""

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtasks.cron import CronSchedule
from pgtasks.firing import GRACE, RECORDED_MAX, Missed, Plan, jitter_s, latest_slots, plan, without_fires
from tests.schedules.helpers import a_due, utc

DOWN_UNTIL = utc("2026-03-03T13:02:00")


def planned(now: datetime, expression: str = "*/5 * * * *", *, seconds: bool = False, **columns: Any) -> Plan:
    """Plan a schedule at a time."""
    timezone = columns.get("timezone", "UTC")
    due = a_due(now, expression=expression, seconds=seconds, **columns)
    return plan(due, CronSchedule(expression, timezone, seconds=seconds))


def fires(found: Plan) -> list[str]:
    """Give the times that fire."""
    return [f"{slot.fire_time:%H:%M:%S}" for slot in found.slots if slot.outcome == "fired"]


def missed(found: Plan) -> list[str]:
    """Give the times that were missed."""
    return [f"{slot.fire_time:%H:%M:%S}" for slot in found.slots if slot.outcome == "missed"]


@pytest.mark.parametrize(
    ("policy", "cap", "fired_count", "missed_count"),
    [("skip", 100, 0, 12), ("latest", 100, 1, 11), ("all", 100, 12, 0), ("all", 5, 5, 7), ("all", 1, 1, 11)],
)
def test_twelve_slots_were_missed(policy: Missed, cap: int, fired_count: int, missed_count: int) -> None:
    """Down from 12:00 to 13:02: what fires late are the latest slots, and 13:05 is next."""
    last = utc("2026-03-03T12:00:00")
    found = planned(
        DOWN_UNTIL, missed=policy, missed_max=cap, planned_from=last - timedelta(days=9), next_fire=last + 5 * MINUTE
    )
    every = [f"{last + n * 5 * MINUTE:%H:%M:%S}" for n in range(1, 13)]
    assert missed(found) == every[:missed_count]
    assert fires(found) == every[missed_count:]
    assert (len(fires(found)), every[-1]) == (fired_count, "13:00:00")
    assert found.next_fire == utc("2026-03-03T13:05:00")
    assert found.expected == last + 5 * MINUTE


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("policy", get_args(Missed))
def test_created_now_fires_nothing_for_the_past(policy: Missed) -> None:
    """Only what comes after it."""
    found = planned(DOWN_UNTIL, missed=policy, planned_from=DOWN_UNTIL - timedelta(milliseconds=3))
    assert (found.slots, found.next_fire) == ((), utc("2026-03-03T13:05:00"))
    on_the_slot = planned(utc("2026-03-03T13:05:00"), missed=policy, planned_from=utc("2026-03-03T13:05:00"))
    assert (on_the_slot.slots, on_the_slot.next_fire) == ((), utc("2026-03-03T13:10:00"))


@pytest.mark.parametrize("policy", get_args(Missed))
def test_within_the_grace_it_is_on_time(policy: Missed) -> None:
    """A deployment that takes a minute loses nothing under any policy; one second more and `skip` skips."""
    slot = utc("2026-03-03T13:00:00")
    assert fires(planned(slot, missed=policy, next_fire=slot)) == ["13:00:00"]
    assert fires(planned(slot + GRACE, missed=policy, next_fire=slot)) == ["13:00:00"]
    late = planned(slot + GRACE + timedelta(seconds=1), missed=policy, next_fire=slot)
    assert fires(late) == ([] if policy == "skip" else ["13:00:00"])


def test_skip_fires_the_latest_of_several_that_are_within_the_grace() -> None:
    """The earlier ones were missed: a later one is due already."""
    now = utc("2026-03-03T13:00:10.5")
    found = planned(now, "@every 1s", missed="skip", next_fire=utc("2026-03-03T13:00:08"))
    assert (missed(found), fires(found)) == (["13:00:08", "13:00:09"], ["13:00:10"])


@pytest.mark.parametrize("policy", get_args(Missed))
@pytest.mark.parametrize(
    ("expression", "seconds", "last"),
    [
        ("@every 1s", False, "2026-06-15T04:00:00"),
        ("* * * * * *", True, "2026-06-15T04:00:00"),
        # More slots than a look back counts lie directly before a long gap.
        ("* * 0-2 * * *", True, "2026-06-15T02:59:59"),
        ("* * * 1 1 *", True, "2026-01-01T23:59:59"),
    ],
)
def test_every_second_down_for_years_is_bounded(policy: Missed, expression: str, seconds: object, last: str) -> None:
    """The latest thousand are recorded, without a hole between them, and the last one is the last one."""
    now = utc("2026-06-15T04:00:00.5")
    found = planned(
        now,
        expression,
        seconds=bool(seconds),
        missed=policy,
        missed_max=7,
        next_fire=now.replace(year=2022, microsecond=0),
    )
    times = [slot.fire_time for slot in found.slots]
    assert times == [utc(last) - timedelta(seconds=n) for n in reversed(range(RECORDED_MAX))]
    assert len(fires(found)) == {"skip": int(now - utc(last) <= GRACE), "latest": 1, "all": 7}[policy]


def test_a_time_that_the_schedule_does_not_have_is_not_fired() -> None:
    """Rules of a time zone changed after it was planned, or a person wrote it."""
    found = planned(
        utc("2026-03-03T13:02:30"),
        missed="all",
        last_fire=utc("2026-03-03T13:00:00"),
        next_fire=utc("2026-03-03T13:02:00"),
    )
    assert (found.slots, found.next_fire) == ((), utc("2026-03-03T13:05:00"))


def test_nothing_before_it_was_planned() -> None:
    """Whatever next_fire says."""
    found = planned(
        DOWN_UNTIL,
        missed="all",
        planned_from=utc("2026-03-03T12:52:00"),
        next_fire=utc("2026-03-03T12:00:00"),
    )
    assert fires(found) == ["12:55:00", "13:00:00"]


def test_a_fire_in_the_repeated_hour() -> None:
    """Between both readings of 01:30 no slot is lost and none comes twice."""
    now = utc("2025-11-02T06:45:00")
    hourly = planned(now, "30 * * * *", timezone="America/New_York", missed="all", next_fire=utc("2025-11-02T05:30:00"))
    assert fires(hourly) == ["05:30:00", "06:30:00"]
    daily = planned(now, "30 1 * * *", timezone="America/New_York", missed="all", next_fire=utc("2025-11-02T05:30:00"))
    assert (fires(daily), daily.next_fire) == (["05:30:00"], utc("2025-11-03T06:30:00"))


def test_without_fires() -> None:
    """Every slot becomes a missed one; the rest stays."""
    found = planned(DOWN_UNTIL, missed="all", next_fire=utc("2026-03-03T12:05:00"))
    refused = without_fires(found)
    assert missed(refused) == fires(found)
    assert not fires(refused)
    assert (refused.next_fire, refused.expected) == (found.next_fire, found.expected)


def test_jitter_is_the_same_everywhere() -> None:
    """It depends on the name and the slot alone, and spreads."""
    slots = [utc("2026-03-03T00:00:00") + n * MINUTE for n in range(200)]
    delays = [jitter_s("nightly", slot, 30.0) for slot in slots]
    assert delays == [jitter_s("nightly", slot.astimezone(), 30.0) for slot in slots]
    assert all(0.0 <= delay < 30.0 for delay in delays)
    assert len(set(delays)) == len(delays)
    assert (min(delays) < 3.0, max(delays) > 27.0) == (True, True)
    assert jitter_s("nightly", slots[0], 30.0) != jitter_s("nightlx", slots[0], 30.0)
    assert jitter_s("nightly", slots[0], 0.0) == 0.0
    # The number itself, because workers of two versions fire side by side.
    assert round(jitter_s("nightly", slots[0], 30.0), 6) == JITTER_OF_NIGHTLY


JITTER_OF_NIGHTLY = 18.835484
EXPRESSIONS = [
    ("@every 1s", False),
    ("@every 90s", False),
    ("* * * * *", False),
    ("*/7 3 * * *", False),
    ("30 1 * * *", False),
    ("0 0 29 2 *", False),
    ("*/20 59 23 * * *", True),
    ("0 9 * * MON-FRI", False),
]
INSTANTS = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds are naive


@given(
    expression=st.sampled_from(EXPRESSIONS),
    timezone=st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe"]),
    policy=st.sampled_from(get_args(Missed)),
    cap=st.integers(1, 20),
    begin=INSTANTS,
    pauses=st.lists(st.floats(0.1, 200_000.0), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_a_life_of_a_schedule(
    expression: tuple[str, bool], timezone: str, policy: Missed, cap: int, begin: datetime, pauses: list[float]
) -> None:
    """Looked at at any moments: no slot twice, none before it was planned or in the future, none left out."""
    text, seconds = expression
    times = CronSchedule(text, timezone, seconds=seconds)
    now, next_fire, seen = begin, None, list[datetime]()
    for pause in pauses:
        now += timedelta(seconds=pause)
        due = a_due(now, missed=policy, missed_max=cap, planned_from=begin, next_fire=next_fire)
        found = plan(due, times)
        slots = [slot.fire_time for slot in found.slots]
        assert slots == latest_slots(times, next_fire - SECOND if next_fire else begin, now, RECORDED_MAX)
        seen.extend(slots)
        assert found.next_fire > now
        assert found.next_fire == times.next_after(now)
        next_fire = found.next_fire
    assert seen == sorted(set(seen))
    assert all(begin < slot <= now for slot in seen)
    if len(seen) < RECORDED_MAX:
        assert seen == times.between(begin, now, RECORDED_MAX)


SECOND = timedelta(seconds=1)


def test_a_next_fire_that_is_no_longer_one_does_not_hide_the_real_slot() -> None:
    """The zone's rules changed: the slot was an hour before what was planned."""
    last, wrong = utc("2026-03-02T09:00:00"), utc("2026-03-03T10:00:00")
    found = planned(wrong, "0 9 * * *", missed="latest", last_fire=last, next_fire=wrong)
    assert fires(found) == ["09:00:00"]
    assert found.slots[0].fire_time == utc("2026-03-03T09:00:00")
    never = planned(wrong, "0 9 * * *", missed="all", planned_from=last, next_fire=wrong)
    assert [slot.fire_time for slot in never.slots] == [utc("2026-03-03T09:00:00")]
