"""The command line: one module per noun, each loaded light, with its heavy parts on use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pgtasks import __version__
from pgtasks.cli import exits, mounts


class Root(TyperGroup):
    """The root command: whatever goes wrong below it ends in `exits.report`."""

    def main(  # type: ignore[override]  # two arguments fewer, which nobody gives
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> int:
        """Run a command and give its exit code; in standalone mode exit with it."""
        argv = list(sys.argv[1:] if args is None else args)
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a character gets it written out, not a crash.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(argv, prog_name or "pgtasks", standalone_mode=False, **extra) or 0
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, it gets a message
            code = exits.report(error, argv)
        if standalone_mode:
            sys.exit(code)
        return int(code)


app = typer.Typer(
    name="pgtasks",
    cls=Root,
    help="A task queue that needs nothing but PostgreSQL.",
    epilog="Exit codes: 0 it worked, 1 it did not, 2 wrong usage, 3 not found, 4 database out of reach, "
    "5 wrong schema, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"pgtasks {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Take the options that stand before every command; `exits` looks for --debug itself."""


mounts.mount(app)


def main() -> None:
    """Run the command that the program's arguments name, and exit with its code."""
    app()
