"""`pgtasks tasks`: single tasks, wherever they are stored."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtasks.cli import options
from pgtasks.cli.database import connected

LIMIT_DEFAULT = 50
LIMIT_MAX = 10_000

commands = typer.Typer(help="List, show, cancel and retry tasks.", no_args_is_help=True, rich_markup_mode=None)


@commands.command("list")
def list_tasks(
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only tasks in this status: scheduled, queued, running, retrying, completed, cancelled or dead.",
        ),
    ] = None,
    queue: options.Queue = None,
    name: options.Name = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="At most so many.")
    ] = LIMIT_DEFAULT,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", help="Only older tasks: the next page of a list.")
    ] = None,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """List tasks, the newest first.

    Filters look at the newest 100,000 tasks of each table; --before continues from there.
    """
    options.check_status(status)
    if before is not None:
        options.check_ids([before])
    from pgtasks.cli import tasks_screen

    with connected(dsn) as connection:
        listed = tasks_screen.read_list(connection, before=before, limit=limit, status=status, queue=queue, name=name)
    tasks_screen.show_list(listed, as_json=as_json)


@commands.command()
def show(id: options.TaskId, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Show everything about one task: its fields, payload, result and failed attempts."""
    options.check_ids([id])
    from pgtasks.cli import tasks_screen

    with connected(dsn) as connection:
        found = tasks_screen.read_task(connection, id)
    tasks_screen.show_task(found, as_json=as_json)


@commands.command()
def cancel(ids: options.TaskIds, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Cancel tasks: a waiting one at once, a running one when its handler can be stopped."""
    from pgtasks.cli import steering
    from pgtasks.store import listing

    checked = options.check_ids(ids)
    with connected(dsn) as connection:
        steering.steer(connection, checked, listing.cancel, steering.CANCELLED, as_json=as_json)


@commands.command()
def retry(ids: options.TaskIds, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Run tasks again now: a waiting one becomes due, a dead one starts afresh."""
    from pgtasks.cli import steering
    from pgtasks.store import listing

    checked = options.check_ids(ids)
    with connected(dsn) as connection:
        steering.steer(connection, checked, listing.hurry, steering.RETRIED, as_json=as_json)
