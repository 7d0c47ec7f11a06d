"""`./dev chaos`: real workers, real faults, and a verdict.

Exit code 0 when every invariant held, 1 when one was violated or a fault could not be undone, 2 for a
command line that makes no sense, 130 after Ctrl-C.
"""

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.machine import facts
from tests.chaos import checker, published, report, stage
from tests.chaos.history import save
from tests.chaos.nemesis import DEFAULT_FAULTS, FAULTS
from tests.chaos.planted import PLANTS

EXIT_OK, EXIT_VIOLATED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130
DRAIN_S_MAX = 300.0


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    made = argparse.ArgumentParser(prog="./dev chaos", description="Real workers, real faults, and a verdict.")
    made.add_argument("--seed", type=int, default=1, help="of producers and faults (1)")
    made.add_argument("--duration", type=float, default=60.0, metavar="S", help="how long faults strike (60)")
    made.add_argument("--faults", metavar="LIST", help="with commas; or default, all, none")
    made.add_argument("--workers", type=int, default=4, metavar="N", help="worker processes (4)")
    made.add_argument("--plant", metavar="NAME", choices=PLANTS, help="plant a bug, with the faults that show it")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    made.add_argument("--list", action="store_true", help="list faults, planted bugs and invariants, and end")
    made.add_argument("--publish", action="store_true", help="write the committed run into the pages, and end")
    return made


def main(arguments: Sequence[str]) -> int:
    """Make one run and give the exit code."""
    options = parser().parse_args(arguments)
    if options.list:
        print(listing())  # noqa: T201 - it talks to a person
        return EXIT_OK
    if options.publish:
        published.publish()
        return EXIT_OK
    try:
        plan = plan_of(options)
    except ValueError as error:
        _say(f"chaos: {error}")
        return EXIT_USAGE
    folder = Path(tempfile.mkdtemp(prefix="pgtasks-chaos-run-"))
    folder.chmod(0o711)
    command = "./dev chaos " + shlex.join(arguments)
    began = time.monotonic()
    try:
        result = stage.run(plan, folder, Terminal())
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        _say("chaos: interrupted; workers and servers are gone")
        return EXIT_INTERRUPTED
    violations = checker.check(result.history)
    document = {
        "command": command,
        "seed": plan.seed,
        "duration_s": plan.duration_s,
        "workers": plan.workers,
        "lease_s": plan.lease_s,
        "sweep_s": plan.sweep_s,
        "plant": plan.plant,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1),
        "machine": facts(),
        **report.figures(result.history, violations, result.faults),
        "violations": [violation._asdict() for violation in violations],
        "failures": result.failures,
    }
    return finish(document, violations, result, folder, options.json)


def finish(
    document: Mapping[str, Any],
    violations: Sequence[checker.Violation],
    result: stage.Result,
    folder: Path,
    target: Path | None,
) -> int:
    """Print the table, write the document, keep or remove the folder; gives the exit code."""
    title = f"chaos, seed {document['seed']}, {document['duration_s']:g} s of faults"
    text = f"\n{title}\n\n{report.table(document, violations)}\n\nAgain: {document['command']}"
    print(text)  # noqa: T201 - it talks to a person
    if target is not None:
        target.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    if not violations and not result.failures:
        shutil.rmtree(folder, ignore_errors=True)
        return EXIT_OK
    for failure in result.failures:
        _say(f"chaos: a fault did not go as planned: {failure}")
    names = sorted({violation.invariant for violation in violations}, key=list(checker.INVARIANTS).index)
    if names:
        _say(f"chaos: VIOLATED: {', '.join(names)}")
    save(result.history, folder / "history.json")
    _say(f"chaos: the logs are in {folder}")
    return EXIT_VIOLATED


def plan_of(options: argparse.Namespace) -> stage.Plan:
    """Give the plan that a command line asks for; raises ValueError."""
    if options.workers < 1 or options.duration < 0:
        raise ValueError("--workers must be at least 1, and --duration not negative")
    kills = max(3, min(30, round(options.duration / 30)))
    plan = stage.Plan(options.seed, options.duration, (), workers=options.workers, kills=kills, drain_s_max=DRAIN_S_MAX)
    if options.plant:
        plan = stage.planted_plan(plan, options.plant)
    if options.faults or not options.plant:
        plan = replace(plan, faults=stage.chosen_faults(options.faults or "default"))
    return plan


def listing() -> str:
    """List what there is to choose from."""
    lines = ["Faults (* in the default set):"]
    for name, kind in FAULTS.items():
        star = "*" if name in DEFAULT_FAULTS else " "
        lines.append(f" {star}{name:20} {(kind.__doc__ or '').splitlines()[0]}")
    lines += ["", "Planted bugs:"]
    lines += [f"  {name:28} {bug.sentence} ({', '.join(bug.seen_by)})" for name, bug in PLANTS.items()]
    lines += ["", "Invariants:"]
    for one in checker.INVARIANTS.values():
        lines.append(f"  {one.id:4} {one.title}" + (f": {one.why_not}" if one.why_not else ""))
    return "\n".join(lines)


class Terminal:
    """Progress: one line that is overwritten on a terminal, one per step elsewhere."""

    def __init__(self) -> None:
        self._step = ""
        self._live = sys.stderr.isatty()
        self._width = shutil.get_terminal_size().columns - 1

    def __call__(self, step: stage.Step, text: str) -> None:
        """Show where the run is."""
        line = f"chaos: {step}: {text}"
        if self._live:
            print(f"\r\033[K{line[: self._width]}", end="", file=sys.stderr, flush=True)  # noqa: T201 - it talks to a person
        elif step != self._step:
            _say(line)
        self._step = step


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - it talks to a person


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
