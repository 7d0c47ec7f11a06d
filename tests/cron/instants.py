"""Short words for instants, as the tables of the tests write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from pgtasks.cron import CronSchedule

SECOND = timedelta(seconds=1)


def utc(text: str) -> datetime:
    """Return an instant; what is written without an offset is UTC."""
    instant = datetime.fromisoformat(text)
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def local_day(schedule: CronSchedule, day: str) -> list[datetime]:
    """Return the fires on one day of the schedule's zone, however long that day is."""
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(schedule.timezone))
    start, end = (each.astimezone(UTC) - SECOND for each in (midnight, midnight + timedelta(days=1)))
    return schedule.between(start, end, 10_000)
