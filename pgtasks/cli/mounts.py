"""Which module holds which command."""

from __future__ import annotations

import importlib
import importlib.util

import typer

from pgtasks.cli import (
    dead,
    doctor,
    enqueue,
    grant,
    metrics,
    prune,
    queues,
    scheduler,
    schedules,
    status,
    tasks,
    top,
    worker,
    workers,
)

# Groups that come with another part of the package, which may be left out.
_OPTIONAL_GROUPS = {"db": "db"}
_OPTIONAL_COMMANDS = {"migrate": ("schema", "migrate"), "demo": ("demo", "demo")}


def mount(app: typer.Typer) -> None:
    """Add every command to the root."""
    app.command("worker")(worker.worker)
    app.command("status")(status.status)
    app.command("top")(top.top)
    app.command("enqueue")(enqueue.enqueue)
    app.add_typer(tasks.commands, name="tasks")
    app.add_typer(queues.commands, name="queues")
    app.add_typer(dead.commands, name="dead")
    app.add_typer(workers.commands, name="workers")
    app.add_typer(schedules.commands, name="schedules")
    app.command("scheduler")(scheduler.scheduler)
    app.command("metrics")(metrics.metrics)
    app.command("doctor")(doctor.doctor)
    app.command("grant")(grant.grant)
    app.command("prune")(prune.command)
    for name, (module, function) in _OPTIONAL_COMMANDS.items():
        if _exists(module):
            app.command(name)(getattr(_load(module), function))
    for name, attribute in _OPTIONAL_GROUPS.items():
        if _exists(name):
            app.add_typer(getattr(_load(name), attribute), name=name)


def _exists(module: str) -> bool:
    return importlib.util.find_spec(f"pgtasks.cli.{module}") is not None


def _load(module: str) -> object:
    return importlib.import_module(f"pgtasks.cli.{module}")
