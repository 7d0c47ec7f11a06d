"""When a cron expression fires in a time zone: pure, from UTC to UTC.

Two rules for the days on which a clock is changed, those of Debian's cron and of cronie:

- A **fixed time** (``30 2 * * *``) fires once a day. In a repeated hour it fires the first time;
  in a skipped hour it fires at the first instant after the gap.
- An **interval** (minute or hour starts with ``*``, such as ``*/15 * * * *``) keeps its cadence
  in real time: it fires whenever the clock shows one of its times, twice in a repeated hour,
  and not at all in a skipped one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from pgtasks.cron import calendar, description, grammar
from pgtasks.cron import zone as clock
from pgtasks.cron.fields import Every, Expression
from pgtasks.errors import ScheduleError

FIRES_MAX = 10_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Leaves room for the longest wait before the last year that Python knows.
INSTANT_MAX = datetime(9900, 1, 1, tzinfo=UTC)
# By then the rules of all zones have settled into what they repeat for ever; Morocco's, which
# follow the moon, are the last. What does not fire from here on never will.
SETTLED = datetime(2090, 1, 1, tzinfo=UTC)
# An interval is looked for in the stretches between changes of the clock, this many at most.
STRETCHES_MAX = 256


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """A cron expression in a time zone; it knows when it fires, and nothing else.

    ``seconds=True`` asks for six fields, the second first. Every method takes aware datetimes of
    any zone and gives UTC. Instants are exclusive where they begin something, so that the last
    fire can be handed in to get the next.

    Raises ScheduleError, which names the field, when the expression can not be read or would
    never fire, or when there is no such time zone.
    """

    expression: str
    timezone: str = "UTC"
    seconds: bool = field(default=False, kw_only=True)
    _rule: Expression | Every = field(init=False, repr=False, compare=False)
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the expression and load the zone."""
        if not isinstance(self.seconds, bool):
            raise ScheduleError(f"it is True or False, not {self.seconds!r}", field="seconds")
        object.__setattr__(self, "_rule", grammar.parse(self.expression, seconds=self.seconds))
        object.__setattr__(self, "_zone", clock.load(self.timezone))
        if self.is_interval:
            self.next_after(SETTLED)

    @property
    def is_interval(self) -> bool:
        """Tell whether this keeps a cadence in real time when the clock is changed."""
        return isinstance(self._rule, Every) or self._rule.is_interval

    def next_after(self, instant: datetime) -> datetime:
        """Give the first fire after an instant; a fire at the instant itself does not count."""
        after = whole_second(instant)
        if isinstance(self._rule, Every):
            return next_period(self._rule, after)
        if self._rule.is_interval:
            return self._next_interval(self._rule, after)
        wall = calendar.next_wall(self._rule, clock.reached(self._zone, after))
        return clock.arrival(self._zone, wall)

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """Give the fires after one instant and up to another, which is included; the first ``limit`` of them."""
        check_limit(limit, "limit")
        end = aware(until, "until")
        fires: list[datetime] = []
        instant = after
        while len(fires) < limit and (instant := self.next_after(instant)) <= end:
            fires.append(instant)
        return fires

    def upcoming(self, n: int, after: datetime) -> list[datetime]:
        """Give the next ``n`` fires after an instant."""
        check_limit(n, "n")
        fires = [after]
        for _ in range(n):
            fires.append(self.next_after(fires[-1]))
        return fires[1:]

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """Give the last fire after one instant and up to another, which is included; None if there is none.

        The cost does not grow with the number of fires: the span is halved until one is left.
        """
        low, high = whole_second(after), aware(until, "until").replace(microsecond=0)
        if low >= high or self.next_after(low) > high:
            return None
        while high - low > clock.SECOND:
            middle = low + (high - low) // clock.SECOND // 2 * clock.SECOND
            if self.next_after(middle) <= until:
                low = middle
            else:
                high = middle
        return high

    def describe(self) -> str:
        """Say in English when this fires, which rule joins its days, and what happens at clock changes."""
        return description.describe(self._rule, self.timezone)

    def _next_interval(self, rule: Expression, after: datetime) -> datetime:
        """Give the first instant after another at which the clock shows a time of the rule.

        One round looks at the stretch up to the next change of the clock.
        """
        for _ in range(STRETCHES_MAX):
            # A fire is at least a second later, and the clock may be changed in that second.
            ahead = clock.offset(self._zone, after + clock.SECOND)
            wall = calendar.next_wall(rule, (after + ahead).replace(tzinfo=None))
            fire = (wall - ahead).replace(tzinfo=UTC)
            near = min(fire, after + clock.QUIET)
            if clock.offset(self._zone, near) != ahead:
                changed = clock.change(self._zone, after + clock.SECOND, near)
                if fire < changed:
                    return fire
                after = changed - clock.SECOND
            elif near == fire:
                return fire
            elif not clock.is_skipped(self._zone, wall):
                return clock.arrival(self._zone, wall)
            else:
                after = clock.arrival(self._zone, wall) - clock.SECOND
        raise ScheduleError(
            f"`{self.expression}` never fires in {self.timezone}: its times are always skipped there by daylight "
            "saving; without the `*` it would fire right after the gap",
            field="hour",
        )


def next_period(rule: Every, after: datetime) -> datetime:
    """Give the first multiple of the period after an instant."""
    period = timedelta(seconds=rule.period_s)
    return EPOCH + ((after - EPOCH) // period + 1) * period


def whole_second(instant: datetime, name: str = "after") -> datetime:
    """Give the second that an instant lies in, in UTC.

    Raises ScheduleError unless the instant is aware and in the years that can be computed.
    """
    second = aware(instant, name).replace(microsecond=0)
    if not EPOCH <= second <= INSTANT_MAX:
        raise ScheduleError(f"{instant} is not in the years 1970 to {INSTANT_MAX.year - 1}", field=name)
    return second


def aware(instant: object, name: str) -> datetime:
    """Give an instant in UTC; one without a time zone could be any."""
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        raise ScheduleError(f"it must be a datetime with a time zone, not {instant!r}", field=name)
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ScheduleError(f"{instant} is before the first or after the last year in UTC", field=name) from None


def check_limit(number: object, name: str) -> None:
    """Refuse a number of fires that is no number, or more than one call gives."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= FIRES_MAX:
        raise ScheduleError(f"it must be a whole number from 0 to {FIRES_MAX}, not {number!r}", field=name)
