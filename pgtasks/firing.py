"""What a schedule does at a given moment: which slots fire, which were missed, and when it is due again.

Pure: the database's time comes in, a plan goes out. The policy for missed slots:

A slot that is noticed within GRACE of its time is on time, if no later slot is due yet. So a
deployment of some seconds loses nothing, under any policy. Every other due slot was missed:

* ``skip``: recorded as missed, not fired;
* ``latest``: the latest one is fired, late; the earlier ones are recorded as missed;
* ``all``: the latest ``missed_max`` are fired, each with its own fire time; the rest is missed.

At most RECORDED_MAX missed slots are recorded per catch-up.

A time that the schedule does not have is never fired, even if it was planned: rules of time
zones change, and people write to the table.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

Missed = Literal["skip", "latest", "all"]
Overlap = Literal["allow", "skip"]
SlotOutcome = Literal["fired", "missed"]

GRACE = timedelta(seconds=60)
RECORDED_MAX = 1000
_SECOND = timedelta(seconds=1)
# Less than the rows of fires are kept before the next fire: they tell which slots are done.
LOOK_BACK = timedelta(days=29)
_WINDOW_FIRST = timedelta(minutes=1)
_CHUNK = 1000
# Nearly always one slot is due; finding the last of many costs more.
_FEW = 3


class Times(Protocol):
    """What this module needs of a cron schedule."""

    def next_after(self, instant: datetime) -> datetime:
        """Give the first fire time after an instant."""

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """Give the fire times after one instant, up to and including another."""

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """Give the last fire time after one instant, up to and including another."""


class Due(NamedTuple):
    """A schedule that is due or not planned yet, as ``schedules_due.sql`` returns it."""

    now: datetime
    next_at: datetime | None
    name: str | None
    expression: str
    timezone: str
    seconds: bool
    missed: Missed
    missed_max: int
    jitter_s: float
    planned_from: datetime
    next_fire: datetime | None
    problem: str | None
    last_fire: datetime | None = None
    overlap: Overlap = "allow"


@dataclass(frozen=True, slots=True)
class Slot:
    """One fire time and what becomes of it; its task starts ``jitter_s`` later."""

    fire_time: datetime
    outcome: SlotOutcome
    jitter_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with a schedule now."""

    name: str
    planned_from: datetime
    expected: datetime | None
    next_fire: datetime
    slots: tuple[Slot, ...]
    overlap: Overlap = "allow"


def plan(due: Due, times: Times) -> Plan:
    """Say what a schedule does at ``due.now``; raises what ``times`` raises."""
    now = due.now
    first = due.next_fire or times.next_after(due.planned_from)
    slots: tuple[Slot, ...] = ()
    if first <= now:
        after = _search_from(due, first, times)
        slots = tuple(_slots(due, latest_slots(times, after, now, max(RECORDED_MAX, due.missed_max))))
    return Plan(
        name=due.name or "",
        planned_from=due.planned_from,
        expected=due.next_fire,
        next_fire=times.next_after(now) if first <= now else first,
        slots=slots,
        overlap=due.overlap,
    )


def _search_from(due: Due, first: datetime, times: Times) -> datetime:
    """Say after which instant slots are due; each later one that has a row is done."""
    if times.between(first - _SECOND, first, 1) == [first]:
        return max(due.planned_from, first - _SECOND)
    # The rules of the zone changed after this was planned: the slot itself may be an earlier one.
    return max(due.planned_from, due.last_fire or due.planned_from, min(first, due.now) - LOOK_BACK)


def without_fires(planned: Plan) -> Plan:
    """Give the plan in which every slot is missed."""
    return replace(planned, slots=tuple(Slot(slot.fire_time, "missed") for slot in planned.slots))


def _slots(due: Due, fire_times: list[datetime]) -> list[Slot]:
    """Apply the policy for missed slots to the due ones, oldest first."""
    if not fire_times:
        return []
    on_time = due.now - fire_times[-1] <= GRACE
    fired = {"skip": int(on_time), "latest": 1, "all": due.missed_max}[due.missed]
    start = max(0, len(fire_times) - fired)
    return [
        Slot(when, "fired", jitter_s(due.name or "", when, due.jitter_s)) if index >= start else Slot(when, "missed")
        for index, when in enumerate(fire_times)
    ]


def latest_slots(times: Times, after: datetime, until: datetime, count: int) -> list[datetime]:
    """Give the latest ``count`` fire times after one instant, up to and including another, oldest first.

    Looks back from the last one in growing windows, because a schedule of every second that was
    down for a year has more slots than anybody wants to count.
    """
    few = times.between(after, until, _FEW)
    if len(few) < _FEW:
        return few
    end = times.latest(after, until) or few[-1]
    window = _WINDOW_FIRST
    while True:
        start = max(after, end - window)
        found = _last(times, start, end, count)
        if start == after or len(found) >= count:
            return found
        window *= 2


def _last(times: Times, after: datetime, until: datetime, count: int) -> list[datetime]:
    """Give the latest ``count`` fire times of a window, whose number is not known."""
    found: deque[datetime] = deque(maxlen=count)
    while chunk := times.between(after, until, _CHUNK):
        found.extend(chunk)
        after = chunk[-1]
    return list(found)


def jitter_s(name: str, fire_time: datetime, most_s: float) -> float:
    """Give a slot's delay: between 0 and ``most_s`` seconds, the same on every host."""
    if most_s <= 0:
        return 0.0
    digest = hashlib.sha256(f"{name}|{fire_time.timestamp()}".encode()).digest()
    return most_s * int.from_bytes(digest[:8], "big") / 2**64
