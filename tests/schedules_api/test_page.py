"""What docs/cron.md says of policies is so."""

from __future__ import annotations

import re
from datetime import datetime
from typing import get_args

import pytest

from pgtasks import schedules
from pgtasks.cron import CronSchedule
from pgtasks.engine.retention import FIRES_KEEP_DAYS_MIN
from pgtasks.firing import GRACE, RECORDED_MAX, Due, Missed, Overlap, plan
from tests.cli.conftest import Run
from tests.cron.instants import utc
from tests.database import Connection, rows, value
from tests.style.checkout import ROOT

PAGE = (ROOT / "docs" / "cron.md").read_text(encoding="utf-8")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")


def section(heading: str) -> str:
    """Return what stands below a heading."""
    text = re.split(rf"^## {re.escape(heading)}$", PAGE, flags=re.MULTILINE)[1]
    return re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0]


def examples() -> list[list[str]]:
    """Return the cells of the table of policies."""
    lines = [line for line in section("Late and missed").splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def instants(cell: str) -> list[datetime]:
    """Return the instants that a cell names."""
    return [utc(text) for text in INSTANT.findall(cell)]


@pytest.mark.parametrize(("missed", "expression", "down", "back", "fires", "misses"), examples())
def test_policies(missed: Missed, expression: str, down: str, back: str, fires: str, misses: str) -> None:
    """Each example of a downtime ends as the page says."""
    times = CronSchedule(expression)
    began = utc(down)
    due = Due(
        now=utc(back), next_at=None, name="x", expression=expression, timezone="UTC", seconds=False, missed=missed,
        missed_max=100, jitter_s=0.0, planned_from=utc("2024-01-01T00:00Z"), next_fire=times.next_after(began),
        problem=None,
    )  # fmt: skip
    slots = plan(due, times).slots
    assert [slot.fire_time for slot in slots if slot.outcome == "fired"] == instants(fires)
    assert [slot.fire_time for slot in slots if slot.outcome == "missed"] == instants(misses)


def test_the_table_covers_every_policy() -> None:
    """The test above would pass on an empty page."""
    assert {row[0] for row in examples()} == set(get_args(Missed))
    assert len(examples()) >= 6


def test_the_numbers_are_those_of_the_code() -> None:
    """Whoever changes one reads the page again."""
    assert f"**{GRACE.total_seconds():g} seconds**" in section("Late and missed")
    assert f"At most {RECORDED_MAX:,} missed slots" in section("Late and missed")
    assert f"kept for {FIRES_KEEP_DAYS_MIN} days" in section("Once per slot")
    making = section("Making a schedule")
    assert f"1 to {schedules.MISSED_MAX}, for `all`" in making
    for kind in (Missed, Overlap):
        assert ", ".join(f"`{word}`" for word in get_args(kind)) in making


@pytest.mark.pg
def test_the_sql_example_works(pgtasks: Run, connection: Connection) -> None:
    """It is run as it stands there."""
    (statement,) = re.findall(r"```sql\n(.*?)```", section("Making a schedule"), flags=re.DOTALL)
    rows(connection, statement)
    (listed,) = pgtasks("schedules", "list", "--json").json["schedules"]
    assert (listed["name"], listed["state"]) == ("nightly", "on")


@pytest.mark.pg
def test_the_command_works(pgtasks: Run, connection: Connection) -> None:
    """It is run as it stands there, and has the defaults of the page."""
    (command,) = re.findall(r'\$ pgtasks schedules add nightly "(.*?)" report --timezone (\S+)', PAGE)
    ran = pgtasks("schedules", "add", "nightly", command[0], "report", "--timezone", command[1])
    assert ran.out.startswith("schedule nightly added; next fire ")
    assert value(connection, "SELECT missed || missed_max || overlap || jitter FROM pgtasks.schedules") == (
        "latest100allow00:00:00"
    )
