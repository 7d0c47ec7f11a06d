"""`pgtasks queues`: list, pause and resume."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pgtasks.cli import options
from pgtasks.cli.database import connected
from pgtasks.store.session import SyncConnection

commands = typer.Typer(
    help="List, pause and resume queues, and say what they keep.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Also when no such queue is known yet.")]


@commands.command("list")
def list_queues(as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """List the queues that have tasks, dead letters, settings, handlers or live workers."""
    from pgtasks.cli import queues_screen

    queues_screen.show(dsn, as_json=as_json)


@commands.command()
def pause(queue: Name, force: Force = False, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Stop workers from claiming a queue's tasks; those that run go on."""
    from pgtasks.store import listing
    from pgtasks.store.session import fetch_all

    with connected(dsn) as connection:
        _check(connection, queue, force=force)
        ((changed,),) = fetch_all(connection, listing.pause(queue))
    sentence = "is paused; running tasks go on" if changed else "was paused already"
    _tell(queue, sentence, changed=changed, paused=True, as_json=as_json)


@commands.command()
def resume(queue: Name, force: Force = False, as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Let workers claim a queue's tasks again."""
    from pgtasks.store import listing
    from pgtasks.store.session import fetch_all

    with connected(dsn) as connection:
        _check(connection, queue, force=force)
        ((changed,),) = fetch_all(connection, listing.resume(queue))
    _tell(queue, "goes on" if changed else "was not paused", changed=changed, paused=False, as_json=as_json)


@commands.command()
def keep(
    queue: Name,
    completed: Annotated[
        bool | None,
        typer.Option("--completed/--no-completed", help="Whether tasks that completed leave a row in history."),
    ] = None,
    force: Force = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Say, or see, what a queue keeps of its tasks; what failed, died or was cancelled is always kept.

    Without history, nobody can look up what a completed task was or gave.
    """
    from pgtasks.store import listing
    from pgtasks.store.session import fetch_all

    with connected(dsn) as connection:
        _check(connection, queue, force=force)
        if completed is None:
            changed, completed = False, fetch_all(connection, listing.keeps_completed(queue))[0]
        else:
            ((changed,),) = fetch_all(connection, listing.keep_completed(queue, keep=completed))
    if as_json:
        from pgtasks.cli.output import print_json

        print_json({"queue": queue, "keep_completed": completed, "changed": changed})
        return
    from pgtasks.cli.escape import escape

    sys.stdout.write(f"queue {escape(queue)} keeps {'' if completed else 'no '}completed tasks\n")


def _check(connection: SyncConnection, queue: str, *, force: bool) -> None:
    """Refuse a queue that nobody knows, which is probably misspelt; raises NotFound or ConfigError."""
    from pgtasks.cli import known
    from pgtasks.errors import NotFound
    from pgtasks.settings import check_name

    check_name(queue, "QUEUE")
    if force:
        return
    try:
        known.require(connection, queue=queue)
    except NotFound as error:
        raise NotFound(f"{error}, or --force for a queue to come") from None


def _tell(queue: str, sentence: str, *, changed: bool, paused: bool, as_json: bool) -> None:
    if as_json:
        from pgtasks.cli.output import print_json

        print_json({"queue": queue, "paused": paused, "changed": changed})
        return
    from pgtasks.cli.escape import escape

    sys.stdout.write(f"queue {escape(queue)} {sentence}\n")
