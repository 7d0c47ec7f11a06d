"""`./dev bench guard`: a short run against the committed figures; exits with 1 on a regression of more than 15 %.

Nothing here is a rate: rates are about the machine. CPU time is divided by that of a fixed piece of
work done on the same machine in the same minute, and of several runs the cheapest counts, for whatever
else a machine does only ever adds. What looks like a regression is measured again before it is one.

A worker's start and end are taken off: the cheapest of the short runs, which do nothing else, from the
cheapest of the long ones. Round by round, a disturbed short run would make a cost look small.
"""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench import calibration, cpu, database, machine, plans, worker
from bench.database import Bench, Counters
from bench.fleet import Fleet
from bench.report import Figures, dump, progress, rounded
from pgtasks.store.listing import keep_completed
from pgtasks.store.session import fetch_all

COMMITTED = Path(__file__).parent / "results" / "guard.json"
TASKS, ROUNDS, AGAIN = 50_000, 4, 3
TASKS_SEEDED = 20_000
TOLERANCE = 0.15
EXIT_REGRESSED, EXIT_UNREAD = 1, 2
DRAIN_S = 300.0
_PARTS = {"figures", "plans", "settings", "machine", "rounds"}
REGRESSED, BETTER, SAME, UNREAD = "regressed", "better", "same", "not measured"


class Figure(NamedTuple):
    """One figure that is guarded: lower is better, unless `least`."""

    name: str
    meaning: str
    digits: int
    least: bool = False
    tolerance: float = TOLERANCE


# Costs of tasks from which those of a worker's start and end are taken off.
FROM_START = ("worker_cpu_us_per_task", "server_cpu_us_per_task", "commits_per_task")
WHOLE, IDLE = "_whole", "_idle"
FIGURES = (
    Figure("worker_cpu", "the worker's CPU per task, in units of pure Python's", 3),
    Figure("server_cpu", "its server processes' CPU per task, in units of plain SQL's", 3),
    Figure("commits_per_task", "transactions, those at start and end of the worker left out", 4),
    Figure("wal_bytes_per_task", "from claim to history", 0),
    Figure("wal_bytes_per_task_not_kept", "the same where a queue keeps no history", 0),
    Figure("claim_hot_ratio", "claims that touched no index", 3, least=True, tolerance=0.05),
)


class Drained(NamedTuple):
    """What one worker used to drain a queue, its start and end included."""

    worker_cpu_s: float
    server_cpu_s: float
    counters: Counters


class Verdict(NamedTuple):
    """A figure beside the committed one."""

    committed: float | None
    measured: float | None
    change: float | None
    verdict: str


def main(arguments: Sequence[str]) -> int:
    """Measure, compare, say so; gives the exit code. Files that cannot be used are a usage error, not a regression."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        committed = None if options.write else _read(options.against)
        given = _read(options.measured) if options.measured else None
    except (OSError, ValueError) as error:
        parser.error(f"{error}; ./dev bench guard --write --against FILE makes such a file")
    measured = given or measure(options, committed)
    if committed is None:
        options.against.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
        progress(f"bench: wrote {options.against}")
        return 0
    result = compared(committed, measured)
    dump(result) if options.json else _show(result)
    if result["guard"] == REGRESSED:
        return EXIT_REGRESSED
    if result["unread"]:
        progress(
            f"bench: the guard judged nothing of {', '.join(result['unread'])}: not measured here, or not committed"
        )
        return EXIT_UNREAD
    return 0


def positive(text: str) -> int:
    """Read a whole number above 0; raises ArgumentTypeError that says so."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def compared(committed: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """Hold one document against another; gives the verdict on each figure and plan, and on all."""
    verdicts = {figure.name: _judge(figure, committed["figures"], measured["figures"]) for figure in FIGURES}
    same_major = _major(committed) == _major(measured)
    changed = {
        name: {"committed": committed["plans"].get(name, []), "measured": shape}
        for name, shape in measured["plans"].items()
        if same_major and shape != committed["plans"].get(name)
    }
    found = {each.verdict for each in verdicts.values()} | ({REGRESSED} if changed else set())
    return {
        "guard": next((each for each in (REGRESSED, BETTER) if each in found), SAME),
        "figures": {name: verdict._asdict() for name, verdict in verdicts.items()},
        "unread": [name for name, verdict in verdicts.items() if verdict.verdict == UNREAD],
        "plans_compared": len(measured["plans"]) if same_major else 0,
        "plans_changed": changed,
        "rounds": measured["rounds"],
        "machine": measured["machine"],
        "settings": measured["settings"],
    }


def measure(options: argparse.Namespace, committed: Mapping[str, Any] | None) -> dict[str, Any]:
    """Run the rounds, and some more of them while anything looks like a regression.

    What is to be committed takes as many as a judgement may take: the best of more is a better one.
    """
    before = machine.facts()
    least, most = options.rounds + (AGAIN if committed is None else 0), options.rounds + AGAIN
    rounds: list[Figures] = []
    with database.started() as bench:
        document = {"plans": _plans(bench), "settings": bench.settings()}
        while len(rounds) < least or (len(rounds) < most and _looks_bad(committed, rounds)):
            rounds.append(_round(bench, options.tasks))
            said = ", ".join(
                f"{name} {rounded(value, 3)}"
                for name, value in rounds[-1].items()
                if value is not None and not name.endswith((WHOLE, IDLE))
            )
            progress(f"guard {len(rounds)}: {said}")
    return {
        "tasks": options.tasks,
        "figures": figures(rounds),
        "rounds": [{name: rounded(value, 4) for name, value in each.items()} for each in rounds],
        **document,
        "machine": {**before, "load_after": machine.load()},
    }


def _round(bench: Bench, tasks: int) -> Figures:
    """Drain nothing, then a queue that keeps history, then one that does not, with the units measured around them."""
    units = [_units(bench)]
    idle, kept = _drain(bench, 0), _drain(bench, tasks)
    units.append(_units(bench))
    fetch_all(bench.connection, keep_completed("default", keep=False))
    lean = _drain(bench, tasks)
    fetch_all(bench.connection, keep_completed("default", keep=True))
    rows_us = [sql_us for _, sql_us in units if sql_us is not None]
    whole, start = (_costs(each, tasks, is_read=bool(rows_us)) for each in (kept, idle))
    return {
        **{name: _without(whole[name], start[name]) for name in FROM_START},
        **{f"{name}{WHOLE}": cost for name, cost in whole.items()},
        **{f"{name}{IDLE}": cost for name, cost in start.items()},
        "python_us_per_unit": min(python_us for python_us, _ in units),
        "sql_us_per_unit": min(rows_us, default=None),
        "wal_bytes_per_task": kept.counters.wal_bytes / tasks,
        "wal_bytes_per_task_not_kept": lean.counters.wal_bytes / tasks,
        "claim_hot_ratio": kept.counters.hot_updates / kept.counters.updates,
    }


def _costs(drained: Drained, tasks: int, *, is_read: bool) -> Figures:
    """Give what a run cost, its worker's start and end included, per task of the long one."""
    costs = (
        drained.worker_cpu_s * 1e6,
        drained.server_cpu_s * 1e6 if is_read else None,
        float(drained.counters.commits),
    )
    return {name: None if cost is None else cost / tasks for name, cost in zip(FROM_START, costs, strict=True)}


def _units(bench: Bench) -> tuple[float, float | None]:
    """Give the CPU microseconds of one unit of Python's work and of SQL's."""
    rows_s = calibration.sql_s(bench.connection)
    return calibration.python_s() / calibration.UNITS * 1e6, rows_s and rows_s / calibration.ROWS * 1e6


def _drain(bench: Bench, tasks: int) -> Drained:
    bench.fill(tasks)
    before = bench.counters()
    with (
        cpu.BackendSampler(bench.admin_dsn, bench.name) as sampler,
        Fleet(bench, worker.command()) as fleet,
    ):
        usage = fleet.wait(DRAIN_S)
    after = bench.counters()
    left = bench.value("SELECT count(*) FROM pgtasks.tasks")
    assert not left, f"{left} of {tasks} tasks are left: the run is not valid"
    return Drained(usage.cpu_s, sampler.cpu_s(), after.since(before))


def _plans(bench: Bench) -> dict[str, list[str]]:
    bench.fill(0)
    plans.seed(bench.connection, TASKS_SEEDED)
    bench.connection.execute("VACUUM (ANALYZE) pgtasks.tasks, pgtasks.leases")
    shapes = plans.shapes(bench.connection)
    bench.connection.execute("ALTER TABLE pgtasks.tasks RESET (autovacuum_enabled)")
    return shapes


def figures(rounds: Sequence[Figures]) -> Figures:
    """Give the best of each over the rounds, CPU in units of the best calibration: what a busy machine adds is no cost.

    The best of both, and not the best quotient, for that would be one whose calibration was disturbed.
    """
    best = {name: _best(rounds, name, max if name == "claim_hot_ratio" else min) for name in rounds[0]}
    best |= {name: _without(best[name + WHOLE], best[name + IDLE]) for name in FROM_START}
    return {
        "worker_cpu": _quotient(best["worker_cpu_us_per_task"], best["python_us_per_unit"]),
        "server_cpu": _quotient(best["server_cpu_us_per_task"], best["sql_us_per_unit"]),
        **{figure.name: rounded(best[figure.name], 4) for figure in FIGURES if figure.name in best},
    }


def _best(rounds: Sequence[Figures], name: str, pick: Callable[[list[float]], float]) -> float | None:
    values = [value for each in rounds if (value := each[name]) is not None]
    return pick(values) if values else None


def _without(cost: float | None, idle: float | None) -> float | None:
    return None if cost is None or idle is None else cost - idle


def _quotient(cost_us: float | None, unit_us: float | None) -> float | None:
    return rounded(cost_us / unit_us, 4) if cost_us is not None and unit_us else None


def _looks_bad(committed: Mapping[str, Any] | None, rounds: Sequence[Figures]) -> bool:
    if committed is None:
        return False
    best = figures(rounds)
    return any(_judge(figure, committed["figures"], best).verdict == REGRESSED for figure in FIGURES)


def _judge(figure: Figure, committed: Mapping[str, Any], measured: Mapping[str, Any]) -> Verdict:
    old, new = committed.get(figure.name), measured.get(figure.name)
    if not old or new is None:
        return Verdict(old, new, None, UNREAD)
    change = new / old - 1
    worse = -change if figure.least else change
    verdict = REGRESSED if worse > figure.tolerance else BETTER if worse < -figure.tolerance else SAME
    return Verdict(old, new, round(change, 3), verdict)


def _major(document: Mapping[str, Any]) -> str:
    return str(document["settings"]["server_version"]).partition(".")[0]


def _read(path: Path) -> dict[str, Any]:
    """Read a document of the guard; raises OSError or ValueError that names the file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(document, dict) or not document.keys() >= _PARTS:
        raise ValueError(f"{path} is no document of the guard")
    return document


def _show(result: Mapping[str, Any]) -> None:
    """Print the verdicts for a person."""
    table = Table(title=f"guard: best of {len(result['rounds'])} rounds", title_justify="left")
    for heading in ("figure", "committed", "now", "change", "verdict"):
        table.add_column(heading, justify="right" if heading in {"committed", "now", "change"} else "left")
    style = {REGRESSED: "bold red", BETTER: "green", UNREAD: "yellow"}
    for figure in FIGURES:
        verdict = Verdict(**result["figures"][figure.name])
        table.add_row(
            Text(f"{figure.name}\n").append(figure.meaning, style="dim"),
            *("-" if value is None else f"{value:,.{figure.digits}f}" for value in verdict[:2]),
            "-" if verdict.change is None else f"{verdict.change:+.1%}",
            Text(verdict.verdict, style=style.get(verdict.verdict, "")),
        )
    console = Console(highlight=False)
    console.print(table)
    for name, plan in result["plans_changed"].items():
        console.print(f"The plan of {name!r} is another one:", style="bold red", markup=False)
        lines = difflib.unified_diff(plan["committed"], plan["measured"], "committed", "now", lineterm="", n=99)
        console.print("\n".join(lines), markup=False)
    console.print(_summary(result), markup=False)


def _summary(result: Mapping[str, Any]) -> str:
    plans_said = (
        f"{result['plans_compared']} plans compared, {len(result['plans_changed'])} changed."
        if result["plans_compared"]
        else "Plans not compared: another major version of PostgreSQL made the committed ones."
    )
    meant = {
        REGRESSED: "Something costs more than it did. If that is meant, say why in the commit that runs: "
        "./dev bench guard --write",
        BETTER: "Something costs less than it did: hold on to that with ./dev bench guard --write",
        SAME: "Nothing costs more than it did.",
    }
    return f"{plans_said} {meant[result['guard']]}"


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="./dev bench guard", description=__doc__)
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_argument("--write", action="store_true", help="make what is measured the committed figures")
    made.add_argument("--tasks", type=positive, default=TASKS, metavar="N", help=f"tasks a run ({TASKS:,})")
    made.add_argument("--rounds", type=positive, default=ROUNDS, metavar="N", help=f"rounds, at least ({ROUNDS})")
    made.add_argument("--against", type=Path, default=COMMITTED, metavar="FILE", help="the committed figures")
    made.add_argument("--measured", type=Path, metavar="FILE", help="judge these figures instead of measuring")
    return made
