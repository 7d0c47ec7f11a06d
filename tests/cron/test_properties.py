"""What holds for every schedule and every text."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pgtasks.cron import CronSchedule
from pgtasks.errors import ScheduleError
from tests.cron import zones
from tests.cron.expressions import random_expression

INSTANTS = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants naive bounds
EXPRESSIONS = st.integers().map(lambda seed: random_expression(random.Random(seed), night=seed % 2 == 0))
PIECES = st.sampled_from(
    [
        "*",
        "/",
        "-",
        ",",
        "#",
        "@",
        "L",
        "W",
        "?",
        "H",
        "R",
        " ",
        "  ",
        "\t",
        "mon",
        "jan",
        "every",
        "daily",
        *"0123456789",
    ]
)
TEXTS = st.text(max_size=40) | st.lists(PIECES, max_size=25).map("".join)
COLUMNS = st.lists(st.lists(PIECES, min_size=1, max_size=4).map("".join), min_size=4, max_size=7).map(" ".join)


def made(text: str, zone: str) -> CronSchedule | None:
    """Return a schedule, or nothing if the text was refused."""
    try:
        return CronSchedule(text, zone)
    except ScheduleError:
        return None


@given(EXPRESSIONS, st.sampled_from(zones.ZONES), INSTANTS)
@settings(max_examples=150, deadline=None)
def test_fires_go_forward(text: str, zone: str, instant: datetime) -> None:
    """Each is a whole second later than the one before, and no instant between has another answer."""
    schedule = made(text, zone)
    if schedule is None:
        return
    fires = schedule.upcoming(4, instant)
    for before, after in itertools.pairwise([instant, *fires]):
        assert before < after
        assert after.microsecond == 0
        assert after.tzinfo is UTC
        between = before + (after - before) / 2
        assert schedule.next_after(between) == after
        assert schedule.next_after(after - timedelta(microseconds=1)) == after
    assert schedule.between(instant, fires[-1], 10) == fires
    assert schedule.latest(instant, fires[-1]) == fires[-1]
    assert schedule.latest(instant, fires[-1] - timedelta(microseconds=1)) == fires[-2]


@given(TEXTS | COLUMNS, TEXTS | st.sampled_from(zones.ZONES))
@example("* * * * *", "UTC")
@example("L L L L L", "UTC")
@example("0 0 L L L", "..")
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_schedule_or_refused(text: str, zone: str) -> None:
    """A text from anywhere is answered with fires or with a ScheduleError, and with nothing else."""
    schedule = made(text, zone)
    if schedule is not None:
        assert schedule.next_after(datetime(2025, 1, 1, tzinfo=UTC)).year < 2070
        assert schedule.describe().endswith(".")


@given(EXPRESSIONS)
@settings(max_examples=100, deadline=None)
def test_case_and_space_do_not_matter(text: str) -> None:
    """Names may be written in either case, fields may stand in columns."""
    schedule, other = made(text, "UTC"), made("\t " + text.upper().replace(" ", " \t "), "UTC")
    assert (schedule is None) == (other is None)
    if schedule and other:
        assert schedule.upcoming(2, datetime(2025, 1, 1, tzinfo=UTC)) == other.upcoming(
            2, datetime(2025, 1, 1, tzinfo=UTC)
        )
