"""`pgtasks enqueue`: add one task from a shell."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, cast

import typer

from pgtasks.cli import options
from pgtasks.cli.database import connected
from pgtasks.model import OnConflict

TaskName = Annotated[str, typer.Argument(metavar="NAME", help="The task's name.")]
Payload = Annotated[
    str | None,
    typer.Argument(metavar="[PAYLOAD]", help="Its arguments as a JSON object; - reads it from standard input."),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="The queue.  [default: that of the task's handler, or default]"),
]
Priority = Annotated[int | None, typer.Option("--priority", metavar="N", help="Higher runs first.")]
Delay = Annotated[
    str | None, typer.Option("--delay", metavar="TIME", help="Run after this time: seconds, or 15m, 2h, 1d.")
]
RunAt = Annotated[
    str | None, typer.Option("--run-at", metavar="WHEN", help="Run then: ISO 8601 with an offset from UTC.")
]
UniqueKey = Annotated[
    str | None, typer.Option("--unique-key", metavar="KEY", help="At most one living task has this key.")
]
MaxAttempts = Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="How often it may start.")]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Stop an attempt after this time: 90, 15m, 2h.")
]
OnConflictWord = Annotated[
    str | None,
    typer.Option(
        "--on-conflict",
        metavar="WHAT",
        help="When a living task has the key: ignore, raise or replace.  [default: ignore]",
    ),
]


def enqueue(
    name: TaskName,
    payload: Payload = None,
    *,
    queue: Queue = None,
    priority: Priority = None,
    delay: Delay = None,
    run_at: RunAt = None,
    unique_key: UniqueKey = None,
    max_attempts: MaxAttempts = None,
    timeout: Timeout = None,
    on_conflict: OnConflictWord = None,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Add one task and print its id."""
    from pgtasks.cli import payloads
    from pgtasks.client import Client, Options
    from pgtasks.settings import check_name

    chosen = Options(
        queue=queue,
        priority=priority,
        delay=None if delay is None else options.duration(delay, "--delay"),
        run_at=None if run_at is None else options.instant(run_at, "--run-at"),
        unique_key=unique_key,
        max_attempts=max_attempts,
        timeout=None if timeout is None else options.duration(timeout, "--timeout"),
        on_conflict=cast("OnConflict", on_conflict or "ignore"),  # Options refuses any other word
    )
    task = chosen.task(check_name(name, "NAME"), payloads.read(payload))
    with connected(dsn, may_read=False) as connection:
        added = Client(None).enqueue(task, replace(chosen, connection=connection))
        _tell_if_unknown(connection, name)
    if as_json:
        from pgtasks.cli.output import print_json

        print_json({"id": added.id, "created": added.created})
        return
    typer.echo(added.id)
    if not added.created:
        changed = "it was replaced if it was still waiting" if on_conflict == "replace" else "nothing was added"
        typer.echo(f"a living task has this unique key already: {changed}", err=True)


def _tell_if_unknown(connection: Any, name: str) -> None:
    """Say that no worker has registered this name, which is often a typing error; a producer may not look that up."""
    from pgtasks.errors import DatabaseError
    from pgtasks.store import reading
    from pgtasks.store.session import fetch_all, is_about_rights

    try:
        known = [row.name for row in fetch_all(connection, reading.known_names())]
    except DatabaseError as error:
        if is_about_rights(error):
            return
        raise
    if known and name not in known:
        from pgtasks.cli.escape import escape

        hint = options.did_you_mean(name, known)
        typer.echo(escape(f"note: no worker has registered a task named {name!r} yet{hint}"), err=True)
