"""`pgtasks worker`: run an app's tasks until a signal says stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from pgtasks.app import App
from pgtasks.cli.database import DSN_VARIABLE, database, given_dsn
from pgtasks.cli.exits import Terminated
from pgtasks.cli.options import Dsn
from pgtasks.errors import ConfigError
from pgtasks.settings import QueueSlots, worker_settings

Seconds = float | None
# How long threads that handlers left behind may keep the process after all is done.
EXIT_S = 0.3


def worker(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, such as myproject.tasks:app.")],
    *,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="QUEUE[:SLOTS]",
            help="Serve this queue, with at most SLOTS of its tasks at once; may be repeated.  [default: the queues "
            "of the app's tasks]",
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", help="Tasks that run at once.  [default: 100]")
    ] = None,
    lease: Annotated[
        Seconds,
        typer.Option(
            "--lease", metavar="S", help="Seconds after which a silent worker's tasks go to others.  [default: 30]"
        ),
    ] = None,
    sweep_interval: Annotated[
        Seconds,
        typer.Option("--sweep-interval", metavar="S", help="Seconds between looks for expired leases.  [default: 5]"),
    ] = None,
    safety_poll: Annotated[
        Seconds,
        typer.Option("--safety-poll", metavar="S", help="Longest sleep of an idle worker, in seconds.  [default: 5]"),
    ] = None,
    shutdown_grace: Annotated[
        Seconds,
        typer.Option(
            "--shutdown-grace", metavar="S", help="Seconds for running tasks to end after SIGTERM.  [default: 30]"
        ),
    ] = None,
    pooler: Annotated[
        str | None,
        typer.Option("--pooler", metavar="KIND", help="none, or transaction behind such a pooler.  [default: none]"),
    ] = None,
    drain: Annotated[
        bool | None, typer.Option("--drain", help="Work until nothing is due, then exit.", show_default=False)
    ] = None,
    log_format: Annotated[
        str | None, typer.Option("--log-format", metavar="FORMAT", help="text or json.  [default: text]")
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.  [default: info]"),
    ] = None,
    dsn: Dsn = None,
) -> None:
    """Run an app's tasks until SIGTERM or Ctrl-C.

    Every option can also be set in the environment; docs/settings.md names the variables.
    """
    settings = worker_settings(
        {
            "dsn": given_dsn(dsn),
            "queues": tuple(map(QueueSlots.parse, queues)) if queues else None,
            "concurrency": concurrency,
            "lease_s": lease,
            "sweep_interval_s": sweep_interval,
            "safety_poll_s": safety_poll,
            "shutdown_grace_s": shutdown_grace,
            "pooler": pooler,
            "drain": drain,
            "log_format": log_format,
            "log_level": log_level,
        }
    )
    from dataclasses import replace

    from pgtasks.cli import apps, logs

    for number in (signal.SIGTERM, signal.SIGHUP):
        # Until the worker listens to them; as process 1 of a container nothing else would end it.
        signal.signal(number, _leave)
    loaded = apps.load_app(app)
    with _database_of(loaded, settings.dsn) as used:
        logs.configure(settings.log_format, settings.log_level)
        from pgtasks import schema
        from pgtasks.engine.worker import leave_within, run

        schema.require(schema.check(used, pooler=settings.pooler))
        code = run(loaded, replace(settings, dsn=used))
    leave_within(EXIT_S, code)
    raise typer.Exit(code)


def _leave(_number: int, _frame: object) -> NoReturn:
    raise Terminated(0)


@contextmanager
def _database_of(app: App, dsn: str) -> Iterator[str]:
    """Give the connection string to work on: the flag's, else the app's own, else the local server's.

    It is also what the app's handlers enqueue through, unless their app names another.
    """
    if dsn:
        os.environ[DSN_VARIABLE] = dsn
        yield dsn
        return
    try:
        own = app.dsn
    except ConfigError:
        own = None
    with database(own) as used:
        os.environ[DSN_VARIABLE] = used
        yield used
