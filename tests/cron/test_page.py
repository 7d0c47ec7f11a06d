"""What docs/cron.md says is so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from pgtasks import CronSchedule
from pgtasks.errors import ScheduleError
from tests.cron.instants import utc
from tests.style.checkout import ROOT

PAGE = (ROOT / "docs" / "cron.md").read_text(encoding="utf-8")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the tables below a heading."""
    section = re.split(rf"^#+ {re.escape(heading)}$", PAGE, flags=re.MULTILINE)[1]
    section = re.split(r"^#+ ", section, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def examples() -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield expression, zone, instant and fires of every table that shows fires."""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and INSTANT.match(cells[2]):
            yield cells[0].strip("`"), cells[1], cells[2], INSTANT.findall(cells[3].partition("Z: ")[0] + "Z")


@pytest.mark.parametrize("example", [row[0].strip("`") for row in rows("Accepted")])
def test_accepted_examples(example: str) -> None:
    """Each can be made."""
    assert CronSchedule(example).describe()


@pytest.mark.parametrize("example", [row[0].strip("`") for row in rows("Refused")])
def test_refused_examples(example: str) -> None:
    """Each is refused."""
    with pytest.raises(ScheduleError):
        CronSchedule(example)


@pytest.mark.parametrize(("expression", "zone", "after", "fires"), list(examples()))
def test_fires(expression: str, zone: str, after: str, fires: list[str]) -> None:
    """Each fires when the page says."""
    assert CronSchedule(expression, zone).upcoming(len(fires), utc(after)) == [utc(fire) for fire in fires]


def test_the_tables_are_found() -> None:
    """The tests above would pass on an empty page."""
    assert len(rows("Accepted")) > 20
    assert len(rows("Refused")) > 15
    assert len([*examples()]) >= 14
    assert all(fires for _, _, _, fires in examples())
