"""Time zones: which names there are, and what the computation relies on."""

from __future__ import annotations

import itertools
from datetime import timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from pgtasks.cron import CronSchedule, zone
from pgtasks.cron.schedule import SETTLED
from pgtasks.errors import ScheduleError
from tests.cron import zones
from tests.cron.instants import utc


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Etc/GMT-2", "Asia/Kathmandu", "America/Argentina/Ushuaia"])
def test_names_that_exist(name: str) -> None:
    """Those of the time zone database."""
    assert CronSchedule("@daily", name).timezone == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        (" UTC ", "did you mean UTC?"),
        ("PST", "not an abbreviation or an offset"),
        ("+02:00", "not an abbreviation or an offset"),
        ("", "there is no time zone ''"),
        ("localtime", "there is no time zone 'localtime'"),
        ("Europe", "there is no time zone 'Europe'"),
        ("../../etc/passwd", "there is no time zone"),
        ("/etc/localtime", "there is no time zone"),
        ("Europe/Berlin\x00", "there is no time zone"),
        ("x" * 100_000, "not an abbreviation or an offset"),
        (None, "a time zone is named by a string"),
        (2, "a time zone is named by a string"),
    ],
)
def test_other_names_are_refused(name: str, message: str) -> None:
    """With the one that was probably meant."""
    with pytest.raises(ScheduleError) as refused:
        CronSchedule("@daily", name)
    assert refused.value.field == "timezone"
    assert message in str(refused.value)
    assert len(str(refused.value)) < 250


def missing(name: str) -> ZoneInfo:
    """Know no zone, as zoneinfo does without its data."""
    raise ZoneInfoNotFoundError(name)


def test_a_machine_without_time_zones_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even UTC is there then."""
    monkeypatch.setattr(zone, "known", frozenset)
    monkeypatch.setattr(zone, "ZoneInfo", missing)
    for name in ("UTC", "Europe/Berlin"):
        with pytest.raises(ScheduleError, match="install the package tzdata"):
            zone.load(name)


def test_changes_of_a_clock_are_far_apart() -> None:
    """The computation looks for one change at a time in a stretch of this length, in every zone."""
    names = zone.known()
    tables = {name: zones.table(name) for name in names}
    assert sum(map(len, tables.values())) > 10_000
    for name, table in tables.items():
        for before, after in itertools.pairwise(table):
            assert after.instant - before.instant > zone.QUIET, f"{name}: {before}, {after}"


def test_no_clock_is_put_back_by_a_day() -> None:
    """A repeated time comes again within the stretch that is looked at."""
    for name in zone.known():
        for change in zones.table(name):
            assert timedelta(seconds=change.before_s - change.after_s) < zone.QUIET, f"{name}: {change}"


def test_by_then_every_zone_has_settled() -> None:
    """What an interval is asked for when it is made stands for all the years after."""
    for name in zone.known():
        assert all(change.instant < SETTLED for change in zones.table(name)), name


@pytest.mark.parametrize("name", zones.ZONES)
def test_the_table_and_the_clock_agree(name: str) -> None:
    """The zones that the reference is run in change when their tables say, up to where a table ends in a rule."""
    table = [change for change in zones.table(name) if zones.START <= change.instant < utc("2037-01-01")]
    end = max((change.instant for change in table), default=zones.START)
    assert zones.changes(ZoneInfo(name), zones.START, end) == table


def test_an_interval_that_is_always_skipped_is_refused() -> None:
    """By the star it has no time outside the gap, and it would never fire."""
    with pytest.raises(ScheduleError, match="never fires in America/New_York") as refused:
        CronSchedule("*/15 2 8-14 3 */7", "America/New_York")
    assert refused.value.field == "hour"
    assert CronSchedule("*/15 2 8-14 3 */7", "America/Phoenix").next_after(utc("2025-01-01")) == utc("2025-03-09T09:00")
    fixed = CronSchedule("0,15 2 8-14 3 */7", "America/New_York")
    assert fixed.next_after(utc("2025-01-01")) == utc("2025-03-09T07:00")
