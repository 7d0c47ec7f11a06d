"""`python -m bench SCENARIO [--json] [--tasks N] [--rounds N]`, or `python -m bench tables`."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType, ModuleType

from bench import database, drain, horizon, published, report

SCENARIOS: dict[str, ModuleType] = {"drain": drain, "horizon": horizon}
TABLES = "tables"
EXIT_FAILURE, EXIT_INTERRUPTED = 1, 130


def positive(text: str) -> int:
    """Read a whole number above 0."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    lines = [f"  {name:9} {(module.__doc__ or '').splitlines()[0]}" for name, module in SCENARIOS.items()]
    lines.append(f"  {TABLES:9} Measures nothing: write the tables of docs/benchmarks.md from bench/results.")
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description="Measure pgtasks on a PostgreSQL of its own; docs/benchmarks.md says what the figures mean.",
        epilog="\n".join(["scenarios:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", choices=[*SCENARIOS, TABLES], metavar="SCENARIO", nargs="?", help="what to measure")
    parser.add_argument(
        "--tasks", type=positive, metavar="N", help="tasks per run; the published figures use the default"
    )
    parser.add_argument("--rounds", type=positive, metavar="N", help="rounds, of which the median counts")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    if options.scenario is None:
        parser.print_help()
        parser.exit()
    return options


def main(arguments: list[str]) -> int:
    """Run one scenario and print its result; gives the exit code."""
    options = parsed(arguments)
    if options.scenario == TABLES:
        page = published.PAGE.read_text(encoding="utf-8")
        for name, module in SCENARIOS.items():
            page = published.filled(page, name, module.KEYS)
        published.PAGE.write_text(page, encoding="utf-8")
        return 0
    scenario = SCENARIOS[options.scenario]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        with database.started() as bench:
            document = scenario.measure(
                bench, tasks=options.tasks or scenario.TASKS, rounds=options.rounds or scenario.ROUNDS
            )
    except AssertionError as error:
        report.progress(f"bench: {error}")
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    if options.json:
        report.dump(document)
    else:
        report.show(document, scenario.KEYS)
    return 0


def _end(number: int, _frame: FrameType | None) -> None:
    """Let a signal end the server and the worker too."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
