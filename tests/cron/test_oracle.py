"""Schedules against the brute-force reference; `./dev cron-oracle` does the same for all zones."""

from __future__ import annotations

import random
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.cron import oracle, zones

CHUNKS = 6
EXPRESSIONS_PER_CHUNK = 600
SPAN = timedelta(hours=14)
SECONDS_SPAN = timedelta(minutes=150)
SECONDS = (
    "*/20 30 2 * * *",
    "15,45 0 0-3 * * *",
    "0 */10 1-3 * * *",
    "59 59 * * * *",
    "30 0/30 2,3 * * 0",
    "*/7 1 1,2 * * *",
)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_expressions_in_utc(chunk: int) -> None:
    """The day rules, steps, ranges and names, over forty years; never is refused, and only never."""
    differences = oracle.compare_random(EXPRESSIONS_PER_CHUNK, random.Random(chunk))
    assert list(differences) == []


@pytest.mark.parametrize("zone", zones.ZONES)
def test_every_change_of_a_clock(zone: str) -> None:
    """From 2000 to 2040: the fires of the day around it, one by one and asked at any instant between."""
    changes = zones.changes(ZoneInfo(zone))
    differences = oracle.compare_zone(zone, changes, 1, random.Random(zone), SPAN)
    assert list(differences) == []


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Antarctica/Troll"])
def test_seconds_around_a_change_of_a_clock(zone: str) -> None:
    """Second by second."""
    rng = random.Random(zone)
    for change in zones.changes(ZoneInfo(zone))[-2:]:
        clock = oracle.around(ZoneInfo(zone), change, SECONDS_SPAN, tick_s=1)
        for text in SECONDS:
            assert list(oracle.compare_clock(text, zone, clock, rng, seconds=True)) == []
