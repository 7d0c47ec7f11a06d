"""Time zones to try, and when their clocks are changed."""

from __future__ import annotations

import importlib.resources
import struct
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

# Half an hour (Lord Howe), two hours (Troll), at midnight (Havana, Sao Paulo, Beirut, Gaza, Amman,
# Asuncion), 24:00 of a weekday (Cairo), before midnight (Santiago, Nuuk), negative summer time
# (Dublin), around Ramadan (Casablanca), a skipped day (Apia, Fakaofo), changes of the zone itself
# (Moscow, Caracas, Pyongyang, Casey, Eucla, Kathmandu), and the ordinary ones.
ZONES = (
    *("America/New_York", "America/Los_Angeles", "America/St_Johns", "America/Havana", "America/Sao_Paulo"),
    *("America/Santiago", "America/Asuncion", "America/Caracas", "America/Nuuk", "Europe/Berlin", "Europe/London"),
    *("Europe/Dublin", "Europe/Moscow", "Europe/Istanbul", "Africa/Cairo", "Africa/Casablanca", "Asia/Gaza"),
    *("Asia/Tehran", "Asia/Beirut", "Asia/Amman", "Asia/Pyongyang", "Asia/Kathmandu", "Australia/Lord_Howe"),
    *("Australia/Sydney", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Apia", "Pacific/Fakaofo"),
    *("Antarctica/Troll", "Antarctica/Casey", "Atlantic/Azores", "Asia/Kolkata"),
)
START, END = datetime(2000, 1, 1, tzinfo=UTC), datetime(2041, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Change:
    """A clock that is changed: from this instant on it is ahead of UTC by another number of seconds."""

    instant: datetime
    before_s: int
    after_s: int


def ahead_s(zone: ZoneInfo, instant: datetime) -> int:
    """Return by how many seconds the clock is ahead of UTC."""
    return int((instant.astimezone(zone).utcoffset() or timedelta(0)).total_seconds())


def changes(zone: ZoneInfo, start: datetime = START, end: datetime = END) -> list[Change]:
    """Return the changes of a clock, found by asking it every day and then every second."""
    found = []
    day, before_s = start, ahead_s(zone, start)
    while day < end:
        day += DAY
        after_s = ahead_s(zone, day)
        if after_s != before_s:
            instant = day
            while ahead_s(zone, instant - timedelta(hours=1)) == after_s:
                instant -= timedelta(hours=1)
            while ahead_s(zone, instant - SECOND) == after_s:
                instant -= SECOND
            found.append(Change(instant, before_s, after_s))
            before_s = after_s
    return found


def tzif(name: str) -> bytes:
    """Return the compiled data of a zone, from where zoneinfo reads it."""
    for folder in zoneinfo.TZPATH:
        if (path := Path(folder) / name).is_file():
            return path.read_bytes()
    return importlib.resources.files("tzdata").joinpath("zoneinfo", name).read_bytes()


def table(name: str) -> list[Change]:
    """Return the changes since 1970 in the table of a zone (RFC 8536), those of its offset only."""
    data = tzif(name)
    sizes = struct.unpack(">6l", data[20:44])
    isut, isstd, leap, times, types, chars = sizes
    second = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    isut, isstd, leap, times, types, chars = struct.unpack(">6l", data[second + 20 : second + 44])
    start = second + 44
    instants = struct.unpack(f">{times}q", data[start : start + times * 8])
    kinds = data[start + times * 8 : start + times * 9]
    offsets = [struct.unpack(">l", data[start + times * 9 + n * 6 :][:4])[0] for n in range(types)]
    found, before_s = [], offsets[0]
    for instant_s, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != before_s and instant_s >= 0:
            found.append(Change(datetime.fromtimestamp(instant_s, UTC), before_s, offsets[kind]))
        before_s = offsets[kind]
    return found
