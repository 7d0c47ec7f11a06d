"""`@every`: a fixed period, counted from the epoch so that all machines agree."""

from __future__ import annotations

import pytest

from pgtasks.cron import CronSchedule, grammar
from pgtasks.cron.fields import Every
from pgtasks.errors import ScheduleError
from tests.cron.instants import utc


@pytest.mark.parametrize(
    ("text", "period_s"),
    [
        ("@every 90s", 90),
        ("@every 1h30m", 5400),
        ("@every 5m", 300),
        ("@every 1d", 86400),
        ("@every 1d2h3m4s", 93784),
        ("@EVERY\t1H", 3600),
        ("@every 366d", 366 * 86400),
    ],
)
def test_periods(text: str, period_s: int) -> None:
    """Days, hours, minutes and seconds, in this order."""
    assert grammar.parse(text) == Every(period_s)


@pytest.mark.parametrize(
    "text",
    [
        *("@every", "@every 5", "@every m", "@every 5 m", "@every 1.5h", "@every -5m", "@every 30m1h", "@every 5m5m"),
        *("@every 0s", "@every 0h0m", "@every 367d", "@every 99999999999999999999s", "@every 100ms", "@every 1w"),
        *("@every 5m * * * *", "@every5m"),
    ],
)
def test_what_is_no_period_is_refused(text: str) -> None:
    """A fraction, another order or a period without end cannot be meant."""
    with pytest.raises(ScheduleError) as refused:
        CronSchedule(text)
    assert refused.value.field == "expression"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_it_counts_from_the_epoch_in_every_zone(zone: str) -> None:
    """No clock change touches it, and it does not matter when anybody asks."""
    schedule = CronSchedule("@every 90s", zone)
    assert schedule.is_interval
    assert schedule.next_after(utc("1970-01-01T00:00:00")) == utc("1970-01-01T00:01:30")
    fires = schedule.between(utc("2025-11-02T05:00:00"), utc("2025-11-02T07:00:00"), 1000)
    assert len(fires) == 80
    assert all(fire.timestamp() % 90 == 0 for fire in fires)
    assert schedule.next_after(fires[0].replace(microsecond=1)) == fires[1]
