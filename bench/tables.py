"""A result as Markdown: our figures, the rivals' beside them, and where and how all of it was measured."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench import worker
from bench.report import Key, at

RIVAL = "rival."
# What is measured as a rival's figure is, where it has another name.
OWN = {
    "p50_ms": ("from_call_p50_ms",),
    "p99_ms": ("from_call_p99_ms",),
    "single_rate": ("python_async_rate",),
}
HEADINGS = {
    "ratio_to.{}": "pgtasks against it, both at their best",
    "ratio_at_500_to.{}": "pgtasks with `--concurrency 500` against it",
    "bulk_to.{}": "bulk, pgtasks against it",
    "single_to.{}": "one by one, pgtasks against it",
    "bulk_rate": "bulk, tasks/s",
    "single_rate": "one by one, tasks/s",
    "rate": "tasks/s",
    "rate_held": "tasks/s, snapshot held",
    "rate_free": "tasks/s, none held",
    "held_to_free": "held to free",
    "worker_cpu_us_per_task": "worker CPU, µs/task",
    "backend_cpu_us_per_task": "server CPU, µs/task",
    "p50_ms": "p50, ms from the call",
    "p99_ms": "p99, ms from the call",
    "wal_bytes_per_task": "WAL, bytes/task",
    "commits_per_task": "commits/task",
}


def result(document: Mapping[str, Any], keys: Sequence[Key]) -> str:
    """Give a whole result: the table of our figures, that of the rivals, and the line about the run."""
    ours = [key for key in keys if not _is_a_rivals(document, key)]
    theirs = [key for key in keys if _is_a_rivals(document, key)]
    parts = [figures(document, ours), *([rivals(document, theirs)] if theirs else []), place(document)]
    if document["missing"]:
        parts.append("Not measured in this run: " + "; ".join(map(_cell, document["missing"])) + ".")
    return "\n\n".join(parts)


def figures(document: Mapping[str, Any], keys: Sequence[Key]) -> str:
    """Give our figures, one a row."""
    lines = ["| figure | median | lowest | highest | budget |", "|---|--:|--:|--:|--:|"]
    for key in keys:
        low, high = document["spread"].get(key.name, (None, None))
        cells = [_number(value, key.digits) for value in (value_of(document, key.name), low, high)]
        lines.append(f"| `{key.name}`: {key.meaning} | {' | '.join(cells)} | {_verdict(key, document)} |")
    return "\n".join(lines)


def rivals(document: Mapping[str, Any], keys: Sequence[Key]) -> str:
    """Give each rival as a row under ours, the best first: each figure with its spread over the rounds."""
    by_name = {key.name: key for key in keys}
    columns = list(dict.fromkeys(_column(document, key) for key in keys))
    heads = ["queue", *(HEADINGS.get(each := column.replace(f"{RIVAL}{{}}.", ""), each) for column in columns)]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(heads) - 1)]
    first = next(column for column in columns if column.startswith(RIVAL)).rpartition(".")[2]
    names = sorted_by(document, first)
    own = [
        _spread(document, _own(document, column.rpartition(".")[2]), by_name[column.format(names[0])].digits)
        if column.startswith(RIVAL)
        else ""
        for column in columns
    ]
    lines.append("| " + " | ".join(["**pgtasks**", *own]) + " |")
    for name in names:
        found = [by_name[column.format(name)] for column in columns]
        cells = [
            "; ".join(filter(None, [_spread(document, key.name, key.digits), _verdict(key, document)])) for key in found
        ]
        lines.append("| " + " | ".join([document["rivals"][name]["title"], *cells]) + " |")
    return "\n".join(lines)


def _is_a_rivals(document: Mapping[str, Any], key: Key) -> bool:
    return not set(key.name.split(".")).isdisjoint(document.get("rivals", {}))


def _column(document: Mapping[str, Any], key: Key) -> str:
    """Give a rival's figure without the rival's name."""
    parts = key.name.split(".")
    return ".".join("{}" if part in document["rivals"] else part for part in parts)


def sorted_by(document: Mapping[str, Any], figure: str) -> list[str]:
    """Give the names of the rivals, the best figure first (the lowest of times), those without one at the end."""
    found = {name: value_of(document, f"{RIVAL}{name}.{figure}") for name in document.get("rivals", {})}
    better = 1 if figure.endswith("_ms") else -1
    return sorted(found, key=lambda name: (found[name] is None, better * (found[name] or 0.0)))


def _own(document: Mapping[str, Any], figure: str) -> str:
    """Give the name of ours that is measured as a rival's figure of this name is."""
    known = (*OWN.get(figure, ()), figure)
    return next((name for name in known if value_of(document, name) is not None), figure)


def place(document: Mapping[str, Any]) -> str:
    """Say where and when a document was measured, with how much, and by which command."""
    host, settings = document["machine"], document["settings"]
    rounds = len(document["rounds"])
    # Older documents do not have it.
    commit = f", commit {host['commit']}" if host.get("commit") else ""
    amount = [f"{document['tasks']:,} tasks"]
    if document.get("seconds"):
        amount.append(f"{document['seconds']:g} s a run where time is the limit")
    return (
        f"`{document['command']}`: {', '.join(amount)}, {rounds} round{'s' * (rounds > 1)}, "
        f"{document['finished_at'][:10]}, {host['processor']}, {host['cores']} cores, {host['memory_gib']:g} GiB, "
        f"{host['system']} {host['release'].partition('-')[0]}, Python {host['python']}, "
        f"PostgreSQL {settings['server_version']}{commit}. "
        f"Load average {host['load_before'][0]:.1f} before and {host['load_after'][0]:.1f} after."
    )


def budgets(documents: Mapping[str, Mapping[str, Any]], keys: Mapping[str, Sequence[Key]]) -> str:
    """Give every figure of these documents that has a budget, and whether it keeps it."""
    lines = ["| scenario | figure | measured | budget | |", "|---|---|--:|--:|---|"]
    for name, document in documents.items():
        for key in keys[name]:
            if key.budget is not None:
                value = _number(value_of(document, key.name), key.digits)
                met = _is_met(key, document)
                verdict = "not measured" if met is None else "met" if met else "**missed**"
                lines.append(
                    f"| [{name}](#{name}) | `{key.name}`: {key.meaning} | {value} | {key.budget} | {verdict} |"
                )
    return "\n".join(lines)


def settings(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Say of each rival of these documents what was installed, how it was configured, and who says so."""
    lines = ["| queue | installed | configured for speed | a finished task | measured in |", "|---|---|---|---|---|"]
    for (_, title), (facts, scenarios) in sorted(_rivals_of(documents).items()):
        sources = ", ".join(_source(number, text) for number, text in enumerate(facts["sources"], start=1))
        cells = [
            title,
            ", ".join(f"`{package}`" for package in facts["packages"]),
            f"{_cell(facts['settings'])} Sources: {sources}",
            _cell(facts["keeps"]),
            ", ".join(f"[{name}](#{name})" for name in scenarios),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def speed(drain: Mapping[str, Any], horizon: Mapping[str, Any]) -> str:
    """Say in a few sentences how fast it is, beside what ran in the same run."""
    names = [name for name in sorted_by(drain, "rate") if value_of(drain, f"{RIVAL}{name}.rate") is not None]
    others = ", ".join(
        f"{drain['rivals'][name]['title']} {_hundreds(at(drain, f'{RIVAL}{name}.rate'))}" for name in names
    )
    best = (
        f"{_hundreds(drain['rate_at_best'])} with `--concurrency {worker.CONCURRENCY_BEST}` in place of "
        f"{worker.CONCURRENCY}; at {worker.CONCURRENCY}, "
    )
    ours = (
        f"One worker process, {drain['tasks']:,} no-op tasks, history kept, timeout on, `fsync` on, "
        f"{drain['machine']['cores']} cores: {_hundreds(drain['rate'])} tasks a second, "
        f"{best}{drain['ratio_to_sql_loop']:.2f} of a bare SQL loop, which claims and completes with the same "
        "statements; "
        f"{drain['worker_cpu_us_per_task']:.0f} µs of the worker's CPU, {drain['wal_bytes_per_task']:.0f} bytes of WAL "
        f"and {drain['commits_per_task']:.3f} transactions per task. "
    )
    theirs = f"In the same run, each at its best settings: {others}. " if others else ""
    held = (
        f"While {horizon['tasks']:,} tasks pass behind an open transaction, which keeps vacuum from cleaning up, the "
        f"claims of the last tenth cost {horizon['last_to_first']:.1f} times those of the first."
    )
    return textwrap.fill(ours + theirs + held, 120, break_on_hyphens=False)


def _source(number: int, text: str) -> str:
    """Give an address as a link, with what stands behind it; what is none as it is."""
    address, _, rest = text.partition(" ")
    if address.endswith((",", ":", ";")):
        address, rest = address[:-1], f"{address[-1]} {rest}"
    return _joined(f"[{number}]({address})", _cell(rest)) if "://" in address else _cell(text)


def _joined(link: str, note: str) -> str:
    """Put a note behind a link; one that begins with a comma or a colon has its own space."""
    return f"{link}{note}" if note[:1] in {",", ":", ";"} else f"{link} {note}".strip()


def _hundreds(rate: float) -> str:
    """Give a rate without digits that the next run would not repeat."""
    return f"{round(rate, -2 if rate >= 1000 else -1):,.0f}"  # noqa: PLR2004 - four digits and more


def _rivals_of(documents: Mapping[str, Mapping[str, Any]]) -> dict[tuple[Any, ...], tuple[dict[str, Any], list[str]]]:
    """Give what was measured as a rival, by packages and title: its facts, and the scenarios."""
    found: dict[tuple[Any, ...], tuple[dict[str, Any], list[str]]] = {}
    for scenario, document in documents.items():
        for facts in document.get("rivals", {}).values():
            found.setdefault((str(facts["packages"]), facts["title"]), (facts, []))[1].append(scenario)
    return {(title.lower(), title): value for (_, title), value in found.items()}


def value_of(document: Mapping[str, Any], name: str) -> float | None:
    """Give a figure; None where there is none of that name."""
    try:
        value: float | None = at(document, name)
    except KeyError:
        return None
    return value


def _spread(document: Mapping[str, Any], name: str, digits: int) -> str:
    value = value_of(document, name)
    if value is None:
        return "-"
    low, high = document["spread"][name]
    text = _number(value, digits)
    return text if low == high else f"{text} ({_number(low, digits)} to {_number(high, digits)})"


def _verdict(key: Key, document: Mapping[str, Any]) -> str:
    met = _is_met(key, document)
    return "" if met is None else f"{key.budget}, {'met' if met else 'missed'}"


def _is_met(key: Key, document: Mapping[str, Any]) -> bool | None:
    return document["budgets"].get(key.name, {}).get("met") if key.budget else None


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _cell(text: Iterable[str] | str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")
