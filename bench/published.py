"""The tables of docs/benchmarks.md, made from the committed results and never by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import Key, at
from bench.scenario import Scenario

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def names(scenarios: Mapping[str, Scenario]) -> list[str]:
    """Give the scenarios that have a committed result."""
    return [name for name in scenarios if (RESULTS / f"{name}.json").is_file()]


def read(scenario: str) -> dict[str, Any]:
    """Read the committed result of a scenario; raises FileNotFoundError when there is none."""
    document: dict[str, Any] = json.loads((RESULTS / f"{scenario}.json").read_text(encoding="utf-8"))
    return document


def table(document: Mapping[str, Any], keys: Sequence[Key]) -> str:
    """Give a result as a table in Markdown, with a line that says where it was measured."""
    lines = ["| figure | median | lowest | highest | budget |", "|---|--:|--:|--:|--:|"]
    for key in keys:
        low, high = document["spread"][key.name]
        cells = [_number(value, key.digits) for value in (at(document, key.name), low, high)]
        lines.append(f"| `{key.name}`: {key.meaning} | {' | '.join(cells)} | {_verdict(key, document)} |")
    host, settings = document["machine"], document["settings"]
    place = (
        f"{document['tasks']:,} tasks, {len(document['rounds'])} rounds, {document['finished_at'][:10]}: "
        f"{host['processor']}, {host['cores']} cores, {host['memory_gib']:g} GiB, "
        f"{host['system']} {host['release'].partition('-')[0]}, Python {host['python']}, "
        f"PostgreSQL {settings['server_version']}. "
        f"Load average {host['load_before'][0]:.1f} before and {host['load_after'][0]:.1f} after."
    )
    return "\n".join([*lines, "", place])


def write(scenarios: Mapping[str, Scenario]) -> None:
    """Write the table of each scenario that has a committed result into the page."""
    page = PAGE.read_text(encoding="utf-8")
    for name in names(scenarios):
        page = filled(page, name, scenarios[name])
    PAGE.write_text(page, encoding="utf-8")


def filled(page: str, name: str, scenario: Scenario) -> str:
    """Give the page with the table of a scenario's committed result between its two marks."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    assert after, f"{PAGE.name} has no marks for {name}"
    document = read(name)
    keys = scenario.keys(tuple(document.get("rivals", ())))
    return f"{before}{start}\n{table(document, keys)}\n\n{end}{after}"


def _verdict(key: Key, document: Mapping[str, Any]) -> str:
    if key.budget is None:
        return ""
    return f"{key.budget}, {'met' if document['budgets'][key.name]['met'] else 'missed'}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
