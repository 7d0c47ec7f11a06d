"""`pgtasks top`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from pgtasks.cli import options
from pgtasks.cli.status import INTERVAL_S_DEFAULT, INTERVAL_S_LEAST, INTERVAL_S_MOST
from pgtasks.errors import ConfigError


def top(
    seconds: Annotated[float, typer.Argument(metavar="[SECONDS]", help="The time between two looks.")] = (
        INTERVAL_S_DEFAULT
    ),
    dsn: options.Dsn = None,
) -> None:
    """Watch queues, running tasks, failures and workers; pause queues and cancel tasks with a key.

    The key ? lists the others, q quits.
    """
    if not INTERVAL_S_LEAST <= seconds <= INTERVAL_S_MOST:
        raise ConfigError(f"top takes {INTERVAL_S_LEAST:g} to {INTERVAL_S_MOST} seconds, got {seconds:g}")
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not is_terminal or os.environ.get("TERM", "").lower() in {"", "dumb", "unknown"}:
        raise ConfigError(
            "top draws on a terminal and reads keys from it, and here is none that can — "
            "for a pipe: pgtasks status --watch, for programs: pgtasks status --json"
        )
    from pgtasks.cli import top_loop

    top_loop.run(dsn, seconds)
