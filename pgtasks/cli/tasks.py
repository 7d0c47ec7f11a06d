"""`pgtasks tasks`: single tasks, wherever they are stored."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtasks.cli import options
from pgtasks.cli.database import connected
from pgtasks.errors import ConfigError

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
def explain(id: options.TaskId, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Say why a task does not run, or what became of it, and what to do about that."""
    options.check_ids([id])
    from pgtasks.cli import explain as explanation

    with connected(dsn) as connection:
        explained = explanation.read(connection, id)
    explanation.show(explained, as_json=as_json)


@commands.command()
def cancel(
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]…", help="Task ids.", show_default=False)] = None,
    *,
    queue: options.Queue = None,
    name: options.Name = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only tasks in this status: scheduled, queued, retrying or running.  [default: all that wait]",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many, lowest ids first.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Cancel tasks: a waiting one at once, a running one when its handler can be stopped.

    Give ids, or filters for all tasks that fit; without --status running those only that wait.
    """
    from pgtasks.cli import cancelling, steering
    from pgtasks.store import listing
    from pgtasks.store.cancelling import Filters

    checked = options.check_ids(ids or [])
    filters = Filters(queue=queue, name=name, status=_cancellable(status))
    _refuse_mixtures(checked, filters, is_bulk=dry_run or limit is not None)
    with connected(dsn) as connection:
        if checked:
            steering.steer(connection, checked, listing.cancel, steering.CANCELLED, as_json=as_json)
        else:
            cancelling.cancel(connection, filters, limit=limit, dry_run=dry_run, yes=yes, as_json=as_json)


def _cancellable(status: str | None) -> str | None:
    from pgtasks.store.cancelling import STATUSES

    if options.check_status(status) in (None, *STATUSES):
        return status
    raise ConfigError(f"{status} tasks are finished and cannot be cancelled — one of {', '.join(STATUSES)}")


def _refuse_mixtures(ids: list[int], filters: object, *, is_bulk: bool) -> None:
    from pgtasks.store.cancelling import Filters

    if ids and (filters != Filters() or is_bulk):
        raise ConfigError("ids and filters exclude each other — give the ids, or filters, --limit and --dry-run")
    if not ids and filters == Filters():
        raise ConfigError("say which tasks to cancel — ids, or a filter such as --name, --queue or --status")


@commands.command()
def retry(ids: options.TaskIds, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Run tasks again now: a waiting one becomes due, a dead one starts afresh."""
    from pgtasks.cli import steering
    from pgtasks.store import listing

    checked = options.check_ids(ids)
    with connected(dsn) as connection:
        steering.steer(connection, checked, listing.hurry, steering.RETRIED, as_json=as_json)
