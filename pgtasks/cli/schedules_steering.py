"""Pausing, resuming, removing, pruning and running schedules, and saying what happened to each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from pgtasks.cli import apps, exits, schedules_known
from pgtasks.cli.escape import escape
from pgtasks.cli.options import did_you_mean
from pgtasks.cli.output import print_json
from pgtasks.errors import AppImportError, ConfigError, NotFound, PgtasksError
from pgtasks.store import schedule_reading
from pgtasks.store.schedule_reading import Removed
from pgtasks.store.session import Statement, SyncConnection, fetch_all, fetch_one


def pause(connection: SyncConnection, names: Sequence[str], *, as_json: bool) -> None:
    """Pause schedules; exits with 3 when one does not exist."""
    sentences = {True: "is paused; tasks that it made go on", False: "was paused already"}
    _switch(connection, names, schedule_reading.pause, sentences, enabled=False, as_json=as_json)


def resume(connection: SyncConnection, names: Sequence[str], *, as_json: bool) -> None:
    """Let schedules go on; exits with 3 when one does not exist."""
    sentences = {True: "goes on, from now on", False: "was not paused"}
    _switch(connection, names, schedule_reading.resume, sentences, enabled=True, as_json=as_json)


def _switch(
    connection: SyncConnection,
    names: Sequence[str],
    statement: Callable[[str], Statement[tuple[bool]]],
    sentences: dict[bool, str],
    *,
    enabled: bool,
    as_json: bool,
) -> None:
    done: list[dict[str, Any]] = []
    missing = _Missing(connection, as_json=as_json)
    for name in dict.fromkeys(names):
        row = fetch_one(connection, statement(name))
        if row is None:
            missing.tell(name)
            continue
        done.append({"name": name, "enabled": enabled, "changed": row[0]})
        if not as_json:
            sys.stdout.write(f"schedule {escape(name)} {sentences[row[0]]}\n")
    missing.end({"schedules": done})


def remove(connection: SyncConnection, names: Sequence[str], *, as_json: bool) -> None:
    """Remove schedules; exits with 3 when one does not exist."""
    done: list[dict[str, Any]] = []
    missing = _Missing(connection, as_json=as_json)
    for name in dict.fromkeys(names):
        removed = fetch_one(connection, schedule_reading.remove(name))
        if removed is None:
            missing.tell(name)
            continue
        done.append({"name": name, **removed._asdict()})
        if not as_json:
            sys.stdout.write(f"schedule {escape(name)} is removed{escape(_comes_back(removed))}\n")
    missing.end({"removed": done})


def _comes_back(removed: Removed) -> str:
    if removed.source != "code":
        return ""
    return f"; it comes back when a worker of {removed.deployment or 'its app'} starts whose code defines it"


class _Missing:
    """The names that nobody knows: told at once, counted at the end."""

    def __init__(self, connection: SyncConnection, *, as_json: bool) -> None:
        self._connection, self._as_json = connection, as_json
        self._names: list[str] = []

    def tell(self, name: str) -> None:
        """Say that there is no such schedule."""
        self._names.append(name)
        if not self._as_json:
            sys.stderr.write(escape(f"error: {schedules_known.missing(self._connection, name)}") + "\n")

    def end(self, document: dict[str, Any]) -> None:
        """Print the document, and exit with 3 if there were any."""
        if self._as_json:
            print_json({**document, "not_found": self._names})
        if self._names:
            raise typer.Exit(exits.NOT_FOUND)


def prune(connection: SyncConnection, app: str | None, *, gone: bool, dry_run: bool, as_json: bool) -> None:
    """Remove what a deployment's code no longer defines; raises ConfigError or NotFound.

    ``app`` is MODULE:APP, which is asked for its deployment and its schedules; with ``gone``, a deployment's name.
    """
    deployments = [row[0] for row in fetch_all(connection, schedule_reading.deployments())]
    if app is None:
        there = f"schedules have come from {', '.join(deployments)}" if deployments else "none has schedules from code"
        raise ConfigError(f"say which app, as MODULE:APP — {there}")
    deployment, defined = (app, []) if gone else _code_of(app, deployments)
    if deployment not in deployments:
        raise _no_deployment(deployment, deployments)
    names = [row[0] for row in fetch_all(connection, schedule_reading.prune(deployment, defined, dry_run=dry_run))]
    if as_json:
        print_json({"deployment": deployment, "dry_run": dry_run, "removed": names})
        return
    for name in names:
        sys.stdout.write(f"schedule {escape(name)} {'would be' if dry_run else 'is'} removed\n")
    if not names:
        sys.stdout.write(f"the code of {escape(deployment)} defines all of its schedules; nothing to remove\n")


def _code_of(app: str, deployments: Sequence[str]) -> tuple[str, list[str]]:
    """Give the deployment of an app, and the names of the schedules that its code defines."""
    if app in deployments and ":" not in app:
        raise ConfigError(
            f"{app!r} is the name of a deployment — name its app, as MODULE:APP, or --gone when that exists no more"
        )
    try:
        loaded = apps.load_app(app)
    except AppImportError as error:
        if app in deployments:
            raise AppImportError(f"{error}, or --gone when there is no such app any more") from None
        if did_you_mean(app, deployments):
            raise _no_deployment(app, deployments) from None
        raise
    return loaded.deployment or app, list(loaded.schedules)


def _no_deployment(name: str, deployments: Sequence[str]) -> NotFound:
    return NotFound(f"no schedule comes from the code of {name!r}{did_you_mean(name, deployments)}")


def run(connection: SyncConnection, name: str, *, as_json: bool) -> None:
    """Enqueue a schedule's task now; raises NotFound, or PgtasksError when it must not overlap."""
    done = fetch_one(connection, schedule_reading.run(name))
    if done is None:
        raise schedules_known.missing(connection, name)
    if done.id is None:
        living = "" if done.living is None else f" {done.living}"
        raise PgtasksError(
            f"task{living} of schedule {name!r} lives, and its tasks must not overlap (overlap is skip) — "
            f"wait for it, or cancel it: pgtasks tasks cancel{living or ' ID'}"
        )
    if as_json:
        print_json({"name": name, "task_id": done.id})
    else:
        sys.stdout.write(f"{done.id}\n")
