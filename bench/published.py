"""docs/benchmarks.md and its plots: what is between the marks is made from the committed results, never by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import pictures, tables
from bench.scenario import Scenario

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
README = PAGE.parents[1] / "README.md"
PICTURES = PAGE.parent / "pictures"
PREFIX = "bench-"
BUDGETS, RIVALS, SPEED = "budgets", "rivals", "speed"


def names(scenarios: Mapping[str, Scenario]) -> list[str]:
    """Give the scenarios that have a committed result."""
    return [name for name in scenarios if (RESULTS / f"{name}.json").is_file()]


def read(scenario: str) -> dict[str, Any]:
    """Read the committed result of a scenario; raises FileNotFoundError when there is none."""
    document: dict[str, Any] = json.loads((RESULTS / f"{scenario}.json").read_text(encoding="utf-8"))
    return document


def write(scenarios: Mapping[str, Scenario]) -> None:
    """Write what every committed result says into the page, and draw its plots."""
    page = filled_summary(PAGE.read_text(encoding="utf-8"), scenarios)
    for name in names(scenarios):
        page = filled(page, name, scenarios[name])
    PAGE.write_text(page, encoding="utf-8")
    README.write_text(filled_readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    made = plots(scenarios)
    for old in set(PICTURES.glob(f"{PREFIX}*.svg")) - made.keys():
        old.unlink()
    for path, svg in made.items():
        path.write_text(svg, encoding="utf-8")


def plots(scenarios: Mapping[str, Scenario]) -> dict[Path, str]:
    """Give every plot of the committed results by its file."""
    return {
        PICTURES / f"{PREFIX}{name}.svg": svg
        for scenario in names(scenarios)
        for name, svg in pictures.drawn(read(scenario)).items()
    }


def filled(page: str, name: str, scenario: Scenario) -> str:
    """Give the page with a scenario's committed result between its two marks: plots, tables, and the run."""
    document = read(name)
    shown = [
        f"![{svg.partition('<title>')[2].partition('</title>')[0]}]({PICTURES.name}/{PREFIX}{picture}.svg)"
        for picture, svg in pictures.drawn(document).items()
    ]
    keys = scenario.keys(tuple(document.get("rivals", ())))
    return _between_marks(page, name, "\n\n".join([*shown, tables.result(document, keys)]))


def filled_summary(page: str, scenarios: Mapping[str, Scenario]) -> str:
    """Give the page with the budgets and the rivals of all committed results between their marks."""
    documents = {name: read(name) for name in names(scenarios)}
    keys = {name: scenarios[name].keys(tuple(documents[name].get("rivals", ()))) for name in documents}
    page = _between_marks(page, BUDGETS, tables.budgets(documents, keys))
    return _between_marks(page, RIVALS, tables.settings(documents))


def filled_readme(page: str) -> str:
    """Give the README with what the committed results of `drain` and `horizon` say in a few sentences."""
    return _between_marks(page, SPEED, tables.speed(read("drain"), read("horizon")))


def _between_marks(page: str, name: str, text: str) -> str:
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = page.partition(start)
    _, also_found, after = rest.partition(end)
    assert found, f"{PAGE.name} has no marks for {name}"
    assert also_found, f"{PAGE.name} has no end of {name}"
    return f"{before}{start}\n{text}\n\n{end}{after}"
