"""`pgtasks dead`: dead letters, which stay until somebody replays or purges them."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtasks.cli import options
from pgtasks.cli.database import connected
from pgtasks.errors import ConfigError
from pgtasks.store.dead_letters import REASONS, Filters

LIMIT_DEFAULT = 50
LIMIT_MAX = 10_000

commands = typer.Typer(help="List, show, replay and purge dead letters.", no_args_is_help=True, rich_markup_mode=None)

Ids = Annotated[list[int] | None, typer.Argument(metavar="[ID]…", help="Only these.", show_default=False)]
IdOption = Annotated[list[int] | None, typer.Option("--id", metavar="ID", help="Only this one; may be repeated.")]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="REASON",
        help="Only those that died of this: exhausted (attempts used up), permanent or worker_lost.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Only those that died since then: ISO 8601, or 2h, 7d for ago."),
]
BeforeTime = Annotated[
    str | None,
    typer.Option("--before-time", metavar="WHEN", help="Only those that died before then: ISO 8601, or 2h, 7d."),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many, lowest ids first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@commands.command("list")
def list_dead(
    *,
    queue: options.Queue = None,
    name: options.Name = None,
    reason: Reason = None,
    since: Since = None,
    before_time: BeforeTime = None,
    ids: IdOption = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="At most so many.")
    ] = LIMIT_DEFAULT,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """List dead letters, the latest first."""
    filters = _filters(queue, name, reason, since, before_time, ids)
    from pgtasks.cli import dead_screen

    with connected(dsn) as connection:
        rows = dead_screen.read_list(connection, filters, limit)
    dead_screen.show_list(rows, limit=limit, as_json=as_json)


@commands.command()
def show(id: options.TaskId, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Show everything about one dead letter."""
    options.check_ids([id])
    from pgtasks.cli import dead_screen, tasks_screen

    with connected(dsn) as connection:
        found = dead_screen.read_one(connection, id)
    tasks_screen.show_task(found, as_json=as_json)


@commands.command()
def replay(
    ids: Ids = None,
    *,
    queue: options.Queue = None,
    name: options.Name = None,
    reason: Reason = None,
    since: Since = None,
    before_time: BeforeTime = None,
    id: IdOption = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Move dead letters back into the queue, with fresh attempts; all of them, unless filtered.

    Two people may do this at once: each task is replayed once.
    """
    filters = _filters(queue, name, reason, since, before_time, [*(ids or []), *(id or [])])
    from pgtasks.cli import burial

    with connected(dsn) as connection:
        burial.replay(connection, filters, limit=limit, dry_run=dry_run, as_json=as_json)


@commands.command()
def purge(
    ids: Ids = None,
    *,
    queue: options.Queue = None,
    name: options.Name = None,
    reason: Reason = None,
    since: Since = None,
    before_time: BeforeTime = None,
    id: IdOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters, when no filter is given.")] = False,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Delete dead letters for good; asks first, and needs a filter or --all."""
    filters = _filters(queue, name, reason, since, before_time, [*(ids or []), *(id or [])])
    if filters == Filters() and not everything:
        raise ConfigError("say which dead letters to purge — ids, a filter such as --queue, or --all")
    if filters != Filters() and everything:
        raise ConfigError("--all and a filter exclude each other — leave one out")
    from pgtasks.cli import burial

    with connected(dsn) as connection:
        burial.purge(connection, filters, limit=limit, dry_run=dry_run, yes=yes, as_json=as_json)


def _filters(
    queue: str | None,
    name: str | None,
    reason: str | None,
    since: str | None,
    before_time: str | None,
    ids: list[int] | None,
) -> Filters:
    if reason is not None and reason not in REASONS:
        hint = options.did_you_mean(reason, REASONS)
        raise ConfigError(f"unknown reason {reason!r}{hint} — one of {', '.join(REASONS)}")
    after, before = options.past(since, "--since"), options.past(before_time, "--before-time")
    if after is not None and before is not None and after >= before:
        raise ConfigError("--since lies after --before-time, so nothing can fit")
    checked = tuple(options.check_ids(ids)) if ids else None
    return Filters(queue=queue, name=name, reason=reason, since=after, before_time=before, ids=checked)
