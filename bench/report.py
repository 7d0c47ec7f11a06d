"""From rounds to a result: medians, spread, budgets, and how a person reads them."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.cpu import is_supported

Figures = dict[str, float | None]


class Budget(NamedTuple):
    """A limit that a figure has to keep: at least, or at most."""

    least: float | None = None
    most: float | None = None

    def is_met(self, value: float | None) -> bool | None:
        """Tell whether a figure keeps it; None when there is no figure."""
        if value is None:
            return None
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        return f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}"


class Key(NamedTuple):
    """One figure of a result: its name, which stays, and what it means."""

    name: str
    meaning: str
    digits: int = 0
    budget: Budget | None = None


def progress(line: str) -> None:
    """Say how far a run is."""
    print(line, file=sys.stderr, flush=True)


def document(
    name: str, keys: Sequence[Key], rounds: Sequence[Figures], facts: Mapping[str, Any], missing: Sequence[str]
) -> dict[str, Any]:
    """Make the document of a scenario: each figure is the median over the rounds.

    Names with dots become trees, so `ratio_to.x` is `document["ratio_to"]["x"]`; `spread` and
    `budgets` keep the names as they are.
    """
    medians = {key.name: _over(statistics.median, rounds, key.name) for key in keys}
    unread = [] if is_supported() else ["CPU time of the server: this system does not say; Linux does"]
    return {
        "scenario": name,
        **nested({key.name: rounded(medians[key.name], key.digits) for key in keys}),
        "spread": {
            key.name: [rounded(_over(pick, rounds, key.name), key.digits) for pick in (min, max)] for key in keys
        },
        "budgets": {
            key.name: {"budget": str(key.budget), "met": key.budget.is_met(medians[key.name])}
            for key in keys
            if key.budget is not None
        },
        "rounds": [{name: rounded(value, 4) for name, value in figures.items()} for figures in rounds],
        **facts,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "missing": [*unread, *missing],
    }


def show(result: Mapping[str, Any], keys: Sequence[Key]) -> None:
    """Print a result for a person."""
    table = Table(title=f"{result['scenario']}: medians of {len(result['rounds'])} rounds", title_justify="left")
    for heading in ("figure", "value", "lowest", "highest", "budget"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for key in keys:
        low, high = result["spread"][key.name]
        table.add_row(
            Text(f"{key.name}\n").append(key.meaning, style="dim"),
            *(_text(value, key.digits) for value in (at(result, key.name), low, high)),
            _verdict(key, at(result, key.name)),
        )
    console = Console(highlight=False)
    console.print(table)
    host, settings = result["machine"], result["settings"]
    commit = f" at {host['commit']}" if host["commit"] else ""
    console.print(
        f"{host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB, {host['system']} {host['release']}; "
        f"pgtasks {host['pgtasks']}{commit}, Python {host['python']}, PostgreSQL {settings['server_version']}; "
        f"load {host['load_before'][0]} before, {host['load_after'][0]} after",
        markup=False,
    )
    for line in result["missing"]:
        console.print(f"missing: {line}", markup=False)


def dump(result: Mapping[str, Any]) -> None:
    """Print a result for a program: one document."""
    print(json.dumps(result, indent=2))


def nested(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Make a tree of names with dots: {"ratio_to.x": 1} is {"ratio_to": {"x": 1}}."""
    tree: dict[str, Any] = {}
    for name, value in figures.items():
        *path, leaf = name.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[leaf] = value
    return tree


def at(tree: Mapping[str, Any], name: str) -> Any:
    """Give the value of a name with dots in a tree; raises KeyError."""
    found: Any = tree
    for part in name.split("."):
        found = found[part]
    return found


def rounded(value: float | None, digits: int) -> float | None:
    """Round a figure to the digits that mean something."""
    if value is None:
        return None
    return round(value, digits) if digits else round(value)


def _over(pick: Callable[[list[float]], float], rounds: Sequence[Figures], name: str) -> float | None:
    values = [value for figures in rounds if (value := figures.get(name)) is not None]
    return pick(values) if values else None


def _text(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _verdict(key: Key, value: float | None) -> Text:
    met = key.budget.is_met(value) if key.budget else None
    if key.budget is None or met is None:
        return Text(str(key.budget or ""))
    return Text(f"{key.budget} {'✓' if met else '✗'}", style="green" if met else "bold red")
