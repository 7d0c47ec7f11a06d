"""`pgtasks scheduler`: fire cron schedules, and nothing else, until a signal says stop."""

from __future__ import annotations

import signal
from contextlib import nullcontext

import typer

from pgtasks.cli.database import database, given_dsn, given_listen_dsn
from pgtasks.cli.options import Dsn
from pgtasks.cli.worker import ListenDsn, LogFormat, LogLevel, Pooler, leave
from pgtasks.settings import worker_settings


def scheduler(
    *,
    pooler: Pooler = None,
    listen_dsn: ListenDsn = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    dsn: Dsn = None,
) -> None:
    """Fire cron schedules until SIGTERM or Ctrl-C, without an app and without running any task.

    Workers fire them too, unless started with --no-scheduler; however many do, each slot fires once.
    """
    settings = worker_settings(
        {
            "dsn": given_dsn(dsn),
            "pooler": pooler,
            "listen_dsn": given_listen_dsn(listen_dsn),
            "log_format": log_format,
            "log_level": log_level,
        }
    )
    from pgtasks.cli import logs

    for number in (signal.SIGTERM, signal.SIGHUP):
        # Until the scheduler listens to them; as process 1 of a container nothing else would end it.
        signal.signal(number, leave)
    with nullcontext(settings.dsn) if settings.dsn else database(None) as used:
        logs.configure(settings.log_format, settings.log_level)
        from pgtasks import schema
        from pgtasks.engine.scheduler_process import run

        schema.require(schema.check(used, pooler=settings.pooler))
        code = run(used, pooler=settings.pooler, listen_dsn=settings.listen_dsn)
    raise typer.Exit(code)
