"""What each feature costs: CPU microseconds of the worker and of the server per task, with it and without.

Only tasks that do nothing are run, so that a difference of a tenth of a microsecond can be seen. All
workers are idle before the queue is opened to them: what a feature needs once, at the start, is left out.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from bench import fleet, machine, series, together, worker
from bench.database import Bench
from bench.report import Figures, Key, progress
from bench.scenario import Outcome, Plan, Scenario, no_rivals

PLAIN = "plain"


class Variant(NamedTuple):
    """A worker and its tasks: one feature more, or one less, than the plain ones."""

    meaning: str
    task: str = "noop"
    app: str = "bench.apps.features:app"
    options: tuple[str, ...] = ()
    payload: str = "{}"
    log_level: str = "warning"
    # The plain worker has the feature, and this one lacks it.
    is_without: bool = False
    has_port: bool = False

    def command(self) -> list[str]:
        """Give the command line of the worker."""
        port = ("--metrics-port", str(fleet.free_port())) if self.has_port else ()
        return fleet.worker(self.app, *port, concurrency=worker.CONCURRENCY, log_level=self.log_level)


VARIANTS = {
    "timeout": Variant("a limit to its time, which is on unless told otherwise", task="timeless", is_without=True),
    "history": Variant("a row in history of each completed task, likewise", task="traceless", is_without=True),
    "argument": Variant("a payload with one argument, decoded", task="called", payload='{"number": 7}'),
    "result": Variant("a result, encoded and kept", task="fruitful"),
    "context": Variant("a context parameter", task="informed"),
    "hooks": Variant("a hook before and one after each task, which get the context", app="bench.apps.hooked:app"),
    "metrics": Variant("counting for a metrics port", has_port=True),
    "log_info": Variant("the default log level: a line when a worker starts or stops, none per task", log_level="info"),
    "log_debug": Variant("the level debug: a line for each task", log_level="debug"),
    "threads": Variant("a `def` handler, run in a thread", task="threaded"),
}
KEYS = (
    Key(f"worker_cpu_us.{PLAIN}", "CPU of the worker process for a plain task", 2),
    Key(f"backend_cpu_us.{PLAIN}", "CPU of its server processes", 2),
    *(
        Key(f"worker_cpu_us.{name}", f"what of the worker's is added by {variant.meaning}", 2)
        for name, variant in VARIANTS.items()
    ),
    *(
        Key(f"backend_cpu_us.{name}", f"what of the server's is added by {VARIANTS[name].meaning}", 2)
        for name in ("history", "argument", "result")
    ),
    Key("fsync_ms", "8 KiB written and synced, median", 2),
)


def measure(bench: Bench, plan: Plan, outcome: Outcome) -> None:
    """Run all rounds: a plain worker at both ends and the variants between, forwards and backwards in turns."""
    for number in range(1, plan.rounds + 1):
        fsync_ms = machine.fsync_ms(bench.server.directory)
        names = list(VARIANTS) if number % 2 else list(reversed(VARIANTS))
        plain = Variant("nothing")
        before = _run(bench, plan.tasks, plain)
        runs = {}
        for name in names:
            runs[name] = _run(bench, plan.tasks, VARIANTS[name])
            progress(f"  {name}: {series.shown(runs[name].worker_cpu_us_per_task)} us")
        ends = (before, _run(bench, plan.tasks, plain))
        outcome.rounds.append({**_figures(ends, runs), "fsync_ms": fsync_ms})
        progress(
            f"features {number}/{plan.rounds}: a plain task takes "
            f"{series.shown(outcome.rounds[-1][f'worker_cpu_us.{PLAIN}'])} us of the worker"
        )
    outcome.facts["variants"] = {name: variant.meaning for name, variant in VARIANTS.items()}


def _run(bench: Bench, tasks: int, variant: Variant) -> together.Together:
    bench.fill(tasks, (variant.task,), payload=variant.payload)
    done = together.drained(bench, [variant.command()], tasks)
    if variant.task != "traceless":
        bench.span(tasks)
    return done


def _figures(plain: tuple[together.Together, ...], runs: dict[str, together.Together]) -> Figures:
    figures: Figures = {}
    for side in ("worker_cpu_us", "backend_cpu_us"):
        ends = [getattr(one, f"{side}_per_task") for one in plain]
        if None in ends:
            continue
        base = statistics.fmean(ends)
        figures[f"{side}.{PLAIN}"] = base
        for name, done in runs.items():
            added = getattr(done, f"{side}_per_task") - base
            figures[f"{side}.{name}"] = -added if VARIANTS[name].is_without else added
    return figures


SCENARIO = Scenario(
    name="features",
    summary=(__doc__ or "").partition("\n")[0],
    keys=no_rivals(*KEYS),
    plan=Plan(tasks=200_000, rounds=3),
    measure=measure,
    worker_command=Variant("nothing").command(),
)
