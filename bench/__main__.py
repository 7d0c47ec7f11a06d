"""`python -m bench SCENARIO [--json] …`, or `guard`, or `tables`; without a scenario it lists them."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import psycopg

from bench import database, guard, machine, published, report, rivals
from bench.database import Bench
from bench.guard import positive
from bench.report import Key
from bench.rivals import beside
from bench.scenario import Outcome, Plan, Scenario
from bench.scenarios import SCENARIOS
from pgtasks.errors import PgtasksError

TABLES, GUARD = "tables", "guard"
EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
# Their tasks arrive over the plan's seconds: fewer seconds at the same rate are fewer tasks.
PACED = frozenset({"soak"})
# What ends a run, with a sentence about it; anything else is a mistake in the harness.
FAILURES = (AssertionError, PgtasksError, psycopg.Error, OSError)


def rival_names(text: str) -> tuple[str, ...]:
    """Read names with commas between, or `all`; raises ArgumentTypeError that lists what there is."""
    names = tuple(dict.fromkeys(rivals.RIVALS if text == "all" else filter(None, text.replace(" ", "").split(","))))
    unknown = [name for name in names if name not in rivals.RIVALS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no rival is called {', '.join(unknown)}; there are {', '.join(rivals.RIVALS)}"
        )
    return names


def parser() -> argparse.ArgumentParser:
    """Make the command line."""
    lines = [f"  {name:11} {scenario.summary}" for name, scenario in SCENARIOS.items()]
    lines.append(f"  {GUARD:11} A short run against the committed figures; exits with 1 when anything costs more.")
    lines.append(f"  {TABLES:11} Measures nothing: writes docs/benchmarks.md and its plots from bench/results.")
    made = argparse.ArgumentParser(
        prog="./dev bench",
        description="Measure pgtasks on a PostgreSQL of its own; docs/benchmarks.md says what the figures mean.",
        epilog="\n".join(["scenarios:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    choices = [*SCENARIOS, GUARD, TABLES]
    made.add_argument("scenario", choices=choices, metavar="SCENARIO", nargs="?", help="what to measure")
    made.add_argument(
        "--tasks",
        "--backlog",
        type=positive,
        metavar="N",
        help="tasks a run; the published figures use the default",
    )
    made.add_argument("--rounds", type=positive, metavar="N", help="rounds, of which the median counts")
    made.add_argument("--seconds", type=positive, metavar="S", help="seconds a run, where time is the limit")
    made.add_argument(
        "--rivals",
        type=rival_names,
        default=(),
        metavar="A,B",
        help=f"measure these in turns with us, or `all`: {', '.join(rivals.RIVALS)}; the first time installs them",
    )
    made.add_argument("--json", action="store_true", help="print one JSON document")
    return made


def main(arguments: list[str]) -> int:
    """Run one scenario and print its result; gives the exit code."""
    options = parser().parse_args(arguments)
    if options.scenario is None:
        parser().print_help()
        return 0
    if options.scenario == TABLES:
        published.write(SCENARIOS)
        return 0
    scenario = SCENARIOS[options.scenario]
    if options.rivals and not scenario.has_rivals:
        report.progress(f"bench: {scenario.name} measures no rivals; leave --rivals out")
        return EXIT_USAGE
    if options.seconds and not scenario.plan.seconds:
        report.progress(
            f"bench: no time is the limit of {scenario.name}; leave --seconds out, --tasks makes it shorter"
        )
        return EXIT_USAGE
    return _run(scenario, planned(scenario, options), is_json=options.json)


def planned(scenario: Scenario, options: argparse.Namespace) -> Plan:
    """Give the scenario's plan with what was asked for instead."""
    plan = scenario.plan
    seconds = options.seconds or plan.seconds
    share = seconds / plan.seconds if scenario.name in PACED else 1.0
    return Plan(
        tasks=options.tasks or max(1, round(plan.tasks * share)),
        rounds=options.rounds or plan.rounds,
        seconds=seconds,
        rivals=options.rivals or plan.rivals,
    )


def _run(scenario: Scenario, plan: Plan, *, is_json: bool) -> int:
    """Measure and print; gives the exit code."""
    _end_by_signals()
    keys = scenario.keys(plan.rivals)
    try:
        document = measured(scenario, plan, keys)
    except FAILURES as error:
        report.progress(f"bench: {_line(error)}")
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    if is_json:
        report.dump(document)
    else:
        report.show(document, keys)
    if "failed" in document:
        report.progress(f"bench: {document['failed']}")
        return EXIT_FAILURE
    return 0


def guarded(arguments: list[str]) -> int:
    """Run the guard, which has options of its own; gives the exit code."""
    _end_by_signals()
    try:
        return guard.main(arguments)
    except FAILURES as error:
        report.progress(f"bench: {_line(error)}")
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def measured(scenario: Scenario, plan: Plan, keys: Sequence[Key]) -> dict[str, Any]:
    """Measure on a server made for it; gives the document.

    When a later round fails, the document is that of the rounds before it, and `failed` says why. Raises one
    of FAILURES when there are none.
    """
    before = machine.facts()
    with database.started() as bench:
        settings = bench.settings()
        outcome, failed = _rounds(scenario, bench, plan)
    facts = {
        "tasks": plan.tasks,
        **({"seconds": plan.seconds} if plan.seconds else {}),
        **({"rivals": {name: beside.facts(name) for name in plan.rivals}} if plan.rivals else {}),
        **outcome.facts,
        **({"failed": failed} if failed else {}),
        "command": " ".join(["./dev bench", *sys.argv[1:]]),
        **({"worker_command": " ".join(scenario.worker_command)} if scenario.worker_command else {}),
        "settings": settings,
        "machine": {**before, "load_after": machine.load()},
    }
    return report.document(scenario.name, keys, outcome.rounds, facts, outcome.missing)


def _rounds(scenario: Scenario, bench: Bench, plan: Plan) -> tuple[Outcome, str | None]:
    """Give what was found, and what failed when that is not all."""
    found = Outcome()
    try:
        scenario.measure(bench, plan, found)
    except FAILURES as error:
        if not found.rounds:
            raise
        failed = f"round {len(found.rounds) + 1} of {plan.rounds} failed: {_line(error)}"
        found.missing.append(f"{failed}; the figures are those of the rounds before it")
        return found, failed
    return found, None


def _line(error: Exception) -> str:
    """Say in one line what happened; an error without a text has at least a name."""
    return " ".join(str(error).split()) or type(error).__name__


def _end_by_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    """Let a signal end the server and the worker too."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    if not __debug__:
        # Whether a run is valid is asserted.
        sys.exit("bench: Python was told to leave assertions out, which check every run; start it without -O")
    sys.exit(guarded(sys.argv[2:]) if sys.argv[1:2] == [GUARD] else main(sys.argv[1:]))
