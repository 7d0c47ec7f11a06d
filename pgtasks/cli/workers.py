"""`pgtasks workers`."""

from __future__ import annotations

import typer

from pgtasks.cli import options

commands = typer.Typer(help="List worker processes.", no_args_is_help=True, rich_markup_mode=None)


@commands.callback()
def _workers() -> None:
    """List worker processes."""


@commands.command("list")
def list_workers(as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """List the workers that run, and those that fell silent within the last hour."""
    from pgtasks.cli import queues_screen

    queues_screen.show_workers(dsn, as_json=as_json)
