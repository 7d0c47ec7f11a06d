"""Schedules against the brute-force reference: `./dev cron-oracle` sweeps wide, the tests narrowly.

Each comparison returns the differences as text; none is the only right answer.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from pgtasks.cron import CronSchedule
from pgtasks.errors import ScheduleError
from tests.cron import vixie, zones
from tests.cron.expressions import FIXED, INTERVALS, random_expression

AROUND = timedelta(hours=27)
LIMIT = 10_000
# So many instants between the fires are asked for the next one.
QUESTIONS = 4
# No day that exists is further away than this.
YEARS_MAX = 45
UNFIT = {"localtime", "Factory"}
Clock = list[tuple[int, int]]


def around(zone: ZoneInfo, change: zones.Change, span: timedelta, tick_s: int = 60) -> Clock:
    """Return what a clock shows before and after it is changed."""
    return vixie.shown(zone, change.instant - span, change.instant + span, tick_s)


def compare_clock(text: str, zone: str, clock: Clock, rng: random.Random, *, seconds: bool = False) -> Iterator[str]:
    """Yield where a schedule and the reference differ, walked from fire to fire and asked in between."""
    try:
        schedule = CronSchedule(text, zone, seconds=seconds)
    except ScheduleError:
        return
    rule = vixie.Vixie(text, seconds)
    start, end = (vixie.EPOCH + timedelta(seconds=tick * rule.tick_s) for tick in (clock[0][0], clock[-1][0]))
    right = vixie.fires(rule, clock)
    given = schedule.between(start, end, LIMIT)
    where = f"`{text}` {zone} after {start}"
    if given != right:
        yield f"{where}: right only {sorted({*right} - {*given})}, given only {sorted({*given} - {*right})}"
    instants = sorted(start + rng.random() * (end - start) for _ in range(QUESTIONS))
    for after in instants:
        later = [fire for fire in right if fire > after]
        if later and (fire := schedule.next_after(after)) != later[0]:
            yield f"{where}: next after {after} is {later[0]}, given {fire}"
    earlier = [fire for fire in right if instants[0] < fire <= instants[-1]]
    if (latest := schedule.latest(instants[0], instants[-1])) != (earlier[-1] if earlier else None):
        yield f"{where}: latest up to {instants[-1]} is {earlier[-1:]}, given {latest}"


def compare_far(zone: str, change: zones.Change, clock: Clock, rng: random.Random) -> Iterator[str]:
    """Yield where a schedule of just the hours and the day of a change, asked long before, misses its first fire."""
    ahead_s = rng.choice([change.before_s, change.after_s])
    wall = change.instant.replace(tzinfo=None) + timedelta(seconds=ahead_s)
    hours = f"{max(0, wall.hour - 1)}-{min(23, wall.hour + 1)}"
    text = f"{rng.choice(['*', '*/20', '0', '30', '*/45'])} {hours} {wall.day} {wall.month} *"
    after = change.instant - timedelta(days=rng.randint(40, 300))
    right = vixie.fires(vixie.Vixie(text), clock)
    given = CronSchedule(text, zone).next_after(after)
    if right and given != right[0]:
        yield f"`{text}` {zone} after {after}: right {right[0]}, given {given}"
    if not right and given < change.instant + timedelta(days=1):
        yield f"`{text}` {zone} after {after}: right is none on that day, given {given}"


def compare_utc(text: str, after: datetime, count: int = 4) -> Iterator[str]:
    """Yield where a schedule in UTC and the reference differ in the first fires, or in whether there are any."""
    rule = vixie.Vixie(text)
    right = list(islice(vixie.utc_fires(rule, after, date(after.year + YEARS_MAX, 1, 1)), count))
    try:
        given = CronSchedule(text).upcoming(len(right) or 1, after)
    except ScheduleError as error:
        if right:
            yield f"`{text}` was refused ({error}) and fires at {right[0]}"
        return
    if given != right:
        yield f"`{text}` after {after}: right {list(map(str, right))}, given {list(map(str, given))}"


def random_instant(rng: random.Random) -> datetime:
    """Return a whole second of the years 2000 to 2040."""
    return zones.START + timedelta(seconds=rng.randrange(int((zones.END - zones.START).total_seconds())))


def compare_random(count: int, rng: random.Random) -> Iterator[str]:
    """Yield the differences of random expressions in UTC."""
    for _ in range(count):
        yield from compare_utc(random_expression(rng), random_instant(rng))


def compare_zone(
    zone: str, changes: Iterable[zones.Change], count: int, rng: random.Random, span: timedelta = AROUND
) -> Iterator[str]:
    """Yield the differences of some expressions around the changes of one clock, as many random ones as ``count``."""
    for change in changes:
        clock = around(ZoneInfo(zone), change, span)
        drawn = [rng.choice(FIXED), rng.choice(INTERVALS)]
        drawn += [random_expression(rng, night=rng.random() < 0.7) for _ in range(count)]
        for text in drawn:
            yield from compare_clock(text, zone, clock, rng)
        for _ in range(count):
            yield from compare_far(zone, change, clock, rng)


def new_changes(names: Iterable[str]) -> Iterator[tuple[str, list[zones.Change]]]:
    """Yield zones with those of their changes that no zone before had."""
    seen: set[zones.Change] = set()
    for name in names:
        found = [change for change in zones.changes(ZoneInfo(name)) if change not in seen]
        seen.update(found)
        yield name, found


def croniter_alone(count: int, rng: random.Random) -> str:
    """Say how often croniter by itself differs from the reference in UTC, as it comes and with its Vixie flag."""
    from croniter import croniter  # type: ignore[import-untyped]  # noqa: PLC0415 - only asked for here; no types

    wrong = {False: 0, True: 0}
    compared = 0
    for _ in range(count):
        text, after = random_expression(rng), random_instant(rng)
        right = list(islice(vixie.utc_fires(vixie.Vixie(text), after, date(after.year + YEARS_MAX, 1, 1)), 4))
        compared += bool(right)
        for flag in wrong if right else ():
            try:
                walker = croniter(text, after, implement_cron_bug=flag)
                given = [walker.get_next(datetime).astimezone(UTC) for _ in right]
            except Exception:  # noqa: BLE001 - whatever it raises is no answer
                given = []
            wrong[flag] += given != right
    return f"croniter alone: {wrong[False]} of {compared} wrong, with implement_cron_bug {wrong[True]}"


def main(arguments: list[str]) -> int:
    """Sweep all zones and many random expressions; exit with 1 when anything differs."""
    parser = argparse.ArgumentParser(prog="./dev cron-oracle", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the random expressions (default 1)")
    parser.add_argument("--random", type=int, default=20_000, help="random expressions in UTC (default 20000)")
    parser.add_argument("--each", type=int, default=6, help="random expressions for each clock change (default 6)")
    parser.add_argument("--zone", action="append", help="only this zone; may be repeated (default all)")
    parser.add_argument("--croniter", action="store_true", help="also say how often croniter by itself is wrong")
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    started = time.monotonic()
    wrong = 0
    for difference in compare_random(options.random, rng):
        wrong += report(difference)
    say(f"{options.random} random expressions in UTC: {wrong} differ")
    names = options.zone or sorted(available_timezones() - UNFIT)
    total = 0
    for name, changes in new_changes(names):
        for difference in compare_zone(name, changes, options.each, rng):
            wrong += report(difference)
        total += len(changes)
        if changes:
            say(f"{name}: {len(changes)} changes, {time.monotonic() - started:.0f} s")
    say(f"{total} changes of {len(names)} zones: {wrong} differences in all")
    if options.croniter:
        say(croniter_alone(options.random, rng))
    return 1 if wrong else 0


def say(text: str) -> None:
    """Print a line at once; a sweep takes a while."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def report(difference: str) -> int:
    """Print one difference and count it."""
    say(difference)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
