"""`pgtasks status`."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtasks.cli import options
from pgtasks.errors import ConfigError

INTERVAL_S_DEFAULT = 2.0
INTERVAL_S_LEAST = 0.2
INTERVAL_S_MOST = 86_400


def status(
    seconds: Annotated[
        float | None, typer.Argument(metavar="[SECONDS]", help="With --watch: the time between two looks.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every SECONDS (2 when not given), until Ctrl-C.")
    ] = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Show the queues, the workers, and what deserves a look.

    Counts marked with ~ are estimates, from 20,000 living tasks of a queue on; nothing grows slow with the tables.
    """
    if seconds is not None and not watch:
        raise ConfigError("SECONDS goes with --watch: pgtasks status --watch 5")
    if watch and as_json:
        raise ConfigError("--watch draws for people — for programs, run `pgtasks status --json` again and again")
    if seconds is not None and not INTERVAL_S_LEAST <= seconds <= INTERVAL_S_MOST:
        raise ConfigError(f"--watch takes {INTERVAL_S_LEAST:g} to {INTERVAL_S_MOST} seconds, got {seconds:g}")
    from pgtasks.cli import status_screen

    if watch:
        status_screen.watch(dsn, INTERVAL_S_DEFAULT if seconds is None else seconds)
    else:
        status_screen.show_once(dsn, as_json=as_json)
