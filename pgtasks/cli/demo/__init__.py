"""`pgtasks demo`: tasks run, retry, fail and survive a killed worker, for real, in some 15 seconds.

``plot`` is what happens, in order; ``stage`` has the server and the workers; ``handlers`` is the
app they run; ``view`` shows it; ``promises`` judges by what is in the database afterwards.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pgtasks.cli import exits, options
from pgtasks.cli.database import given_dsn


def demo(
    as_json: options.Json = False,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn",
            metavar="DSN",
            help="Play it in this database, in a queue of its own that is cleared afterwards.  [default: a throw-away "
            "server; PGTASKS_DSN is not looked at]",
        ),
    ] = None,
) -> None:
    """Watch tasks run, retry, fail and survive a killed worker; exit 1 unless every promise held.

    It starts a PostgreSQL of its own, which is gone afterwards. With --dsn it plays there instead
    and deletes its tasks at the end, unless a promise was broken; the names of its handlers stay
    registered.
    """
    from pgtasks.cli.demo import plot

    if not plot.play(None if dsn is None else given_dsn(dsn), as_json=as_json):
        raise typer.Exit(exits.FAILURE)
