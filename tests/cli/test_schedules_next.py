"""`pgtasks schedules next`: expressions without a database, schedules by name."""

import json

import pytest

from pgtasks.cli.schedules_next import looks_like_expression
from tests.cli.conftest import Run
from tests.database import Connection, rows


def test_the_repeated_hour_of_new_york(offline: Run) -> None:
    """Half past one comes twice on 2 November 2025, and fires the first time."""
    ran = offline(
        "schedules", "next", "30 1 * * *", "--timezone", "America/New_York", "--from", "2025-11-01T12:00:00Z",
        "-n", "3", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran
    assert json.loads(ran.out)["fires"] == ["2025-11-02T05:30:00Z", "2025-11-03T06:30:00Z", "2025-11-04T06:30:00Z"]


def test_for_people_in_utc_and_on_the_schedules_own_clock(offline: Run) -> None:
    """With what the expression means."""
    ran = offline(
        "schedules", "next", "0 30 1 * * *", "--seconds", "--timezone", "America/New_York", "--from",
        "2025-11-01T12:00:00+01:00", "-n", "1",
    )  # fmt: skip
    first, second = ran.out.splitlines()
    assert first.startswith("At 01:30")
    assert second == "Sun 2025-11-02 05:30:00Z  2025-11-02 01:30:00 EDT"


def test_it_begins_now_and_shows_ten(offline: Run) -> None:
    """Unless asked otherwise."""
    assert len(offline("schedules", "next", "@every 1s", "--json").json["fires"]) == 10


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["0 0 30 2 *"], "day-of-month"),
        (["0 4 * *"], "did you mean `0 4 * * *`?"),
        (["@hourli"], "@hourly"),
        (["*"], "expression"),
        (["0 4 * * *", "--timezone", "PST"], "timezone"),
        (["0 4 * * *", "--from", "2025-11-01T12:00:00"], "--from"),
        (["0 4 * * *", "--from", "9999-01-01T12:00:00Z"], "9899"),
        (["0 4 * * *", "-n", "0"], "-n"),
        (["nightly", "--timezone", "UTC"], "--timezone"),
    ],
)
def test_what_is_refused_is_2_and_needs_no_database(offline: Run, arguments: list[str], part: str) -> None:
    """The message names the field."""
    ran = offline("schedules", "next", *arguments)
    assert (ran.code, ran.out) == (2, ""), ran
    assert part in ran.err


@pytest.mark.parametrize(
    ("text", "expected"), [("nightly", False), ("7days", False), ("Hourly mails", False), ("nightly report", False),
                           ("61 * * * *", True), ("@x", True), ("H * * * *", True), ("* *", True)]
)  # fmt: skip
def test_what_is_taken_for_an_expression(text: str, expected: bool) -> None:  # noqa: FBT001 - it is a table's cell
    """Anything else is looked up as a name."""
    assert looks_like_expression(text) is expected


@pytest.mark.pg
def test_a_schedule_by_name(pgtasks: Run, connection: Connection) -> None:
    """It has its own time zone; one that cannot be planned is 1."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, timezone, seconds, task) VALUES"
        " ('nightly report', '0 30 1 * * *', 'America/New_York', true, 't'), ('odd', '99 * * * *', 'UTC', false, 't')",
    )
    ran = pgtasks("schedules", "next", "nightly report", "--from", "2025-11-01T12:00:00Z", "-n", "1", "--json")
    assert ran.json["name"] == "nightly report"
    assert ran.json["fires"] == ["2025-11-02T05:30:00Z"]
    assert "paused" not in ran.err
    rows(connection, "UPDATE pgtasks.schedules SET enabled = false")
    assert "is paused" in pgtasks("schedules", "next", "nightly report").err
    odd = pgtasks("schedules", "next", "odd")
    assert odd.code == 1
    assert "minute" in odd.err
