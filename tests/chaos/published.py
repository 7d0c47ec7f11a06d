"""What docs/reliability.md and the README say of this suite, made from its code and the committed run.

`./dev chaos --publish` writes it; a test holds that nothing else was written there by hand.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chaos import checker
from tests.chaos.nemesis import DEFAULT_FAULTS, FAULTS
from tests.chaos.planted import PLANTS
from tests.database import ROOT

RESULT = ROOT / "bench" / "results" / "chaos.json"
PAGE = ROOT / "docs" / "reliability.md"
README = ROOT / "README.md"
NOTHING = "No long run has been published yet."


def committed() -> dict[str, Any] | None:
    """Read the committed run; None when there is none."""
    if not RESULT.exists():
        return None
    document: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    return document


def publish() -> None:
    """Write both pages anew."""
    for path, texts in pages(committed()).items():
        page = path.read_text(encoding="utf-8")
        for name, text in texts.items():
            page = filled(page, name, text)
        path.write_text(page, encoding="utf-8")


def pages(document: Mapping[str, Any] | None) -> dict[Path, dict[str, str]]:
    """Give the texts that belong between the marks of each page."""
    blocks = {"invariants": invariants(), "faults": faults(), "planted bugs": plants(), "chaos run": run(document)}
    return {PAGE: blocks, README: {"chaos run": line(document)}}


def filled(page: str, name: str, text: str) -> str:
    """Give a page with a text between its two marks."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    assert end in rest, f"there are no marks for {name!r}"
    return f"{before}{start}\n{text}\n\n{end}{after}"


def invariants() -> str:
    """Give the invariants as a table."""
    rows = ["| | what must hold | how it is checked |", "|---|---|---|"]
    for one in checker.INVARIANTS.values():
        text = ((one.check.__doc__ if one.check else "") or "").partition("\n")[0].partition(": ")[2]
        rows.append(f"| {one.id} | {one.title} | {text or 'not yet: ' + one.why_not} |")
    return "\n".join(rows)


def faults() -> str:
    """Give the faults as a table."""
    rows = ["| fault | what happens | default set |", "|---|---|---|"]
    for name, kind in FAULTS.items():
        text = (kind.__doc__ or "").partition("\n")[0]
        rows.append(f"| `{name}` | {text} | {'yes' if name in DEFAULT_FAULTS else ''} |")
    return "\n".join(rows)


def plants() -> str:
    """Give the planted bugs as a table."""
    rows = ["| bug | what is wrong | shown by | seen by |", "|---|---|---|---|"]
    for name, bug in PLANTS.items():
        struck = ", ".join(f"`{fault}`" for fault in bug.faults) or "work alone"
        rows.append(f"| `{name}` | {bug.sentence} | {struck} | {' or '.join(bug.seen_by)} |")
    return "\n".join(rows)


def run(document: Mapping[str, Any] | None) -> str:
    """Give the figures of a run as a table."""
    if document is None:
        return NOTHING
    recovery, stop = document["recovery_s"], document["stop_s"]
    rows = [
        ("tasks", f"{document['tasks']:,}"),
        ("enqueued: committed, rolled back, unknown to the producer", _three(document)),
        ("slots of schedules", f"{document['fires']:,}"),
        ("workers killed, paused", f"{document['kills']:,}, {document['pauses']:,}"),
        ("faults", ", ".join(f"{name} {count}" for name, count in document["faults"].items())),
        ("**lost**", f"**{document['lost']:,}**"),
        ("**completed twice**", f"**{document['completed_twice']:,}**"),
        ("stale writes refused", f"{document['stale_writes_refused']:,}"),
        ("tasks whose effect happened more than once (at least once is the promise)", f"{document['reruns']:,}"),
        ("from a SIGKILL until the task starts again: p50, p99", _quantiles(recovery)),
        ("from SIGTERM to the end of a worker under load: p50, p99", _quantiles(stop)),
        ("drain after the last fault", f"{document['drain_s']:.1f} s"),
        ("invariants violated", ", ".join(_violated(document)) or "none"),
    ]
    host = document["machine"]
    place = (
        f"{document['finished_at'][:10]}, {document['workers']} workers, lease {document['lease_s']:g} s, sweep every "
        f"{document['sweep_s']:g} s: {host['processor']}, {host['cores']} cores, {host['memory_gib']:g} GiB, "
        f"Python {host['python']}. Again: `{document['command']}`"
    )
    return "\n".join(["| figure | |", "|---|--:|", *(f"| {name} | {value} |" for name, value in rows), "", place])


def line(document: Mapping[str, Any] | None) -> str:
    """Give a run as the one line of the README."""
    if document is None:
        return NOTHING
    struck = document["faults"]
    crashes = sum(struck.get(name, 0) for name in ("crash_server", "kill_backend"))
    return (
        f"The last long run of `./dev chaos`: {document['tasks']:,} tasks, {document['kills']:,} kills of workers, "
        f"{document['pauses']:,} pauses,\n{crashes:,} server crashes, {struck.get('failover', 0):,} failovers; "
        f"{document['lost']:,} lost, {document['completed_twice']:,} completed twice, "
        f"{document['stale_writes_refused']:,} stale writes refused;\n"
        f"work of a killed worker starts again within {document['recovery_s']['p99']:g} s (p99, lease "
        f"{document['lease_s']:g} s)."
    )


def _three(document: Mapping[str, Any]) -> str:
    return ", ".join(f"{document[name]:,}" for name in ("committed", "rolled_back", "indeterminate"))


def _quantiles(values: Mapping[str, Any]) -> str:
    return "-" if values["p50"] is None else f"{values['p50']:.1f} s, {values['p99']:.1f} s (of {values['count']:,})"


def _violated(document: Mapping[str, Any]) -> list[str]:
    return [name for name, verdict in document["invariants"].items() if verdict == "violated"]
