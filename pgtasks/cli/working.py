"""What `pgtasks worker` does once its settings are known. Imports the engine, which no other command needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from pgtasks import schema
from pgtasks.app import App
from pgtasks.cli import apps, child, logs
from pgtasks.cli.database import DSN_VARIABLE, POOLER_VARIABLE, database
from pgtasks.cli.watching import watching
from pgtasks.cli.worker import end_on_signals
from pgtasks.engine.departure import EXIT_FAILURE, EXIT_RECYCLE
from pgtasks.engine.rebirth import Rebirth
from pgtasks.engine.supervised import Greeting, Supervision
from pgtasks.engine.worker import leave_within, run
from pgtasks.errors import ConfigError
from pgtasks.health.systemd import Systemd
from pgtasks.settings import WorkerSettings

__all__ = ["leave_within", "work"]


def work(
    target: str, settings: WorkerSettings, supervision: Supervision | None, rebirth: Rebirth, systemd: Systemd
) -> int:
    """Load the app and run a worker; gives the exit code."""
    # What the app's handlers enqueue through is the same way.
    os.environ[POOLER_VARIABLE] = settings.pooler
    # Before the app is loaded, which may go to another folder.
    log_worker = "" if supervision is None else str(supervision.worker_id)
    child_command, child_folder = child.command(target, settings, log_worker), str(Path.cwd())
    loaded = apps.load_app(target)
    with _database_of(loaded, settings.dsn, notes=supervision is None) as (used, is_local):
        logs.configure(settings.log_format, settings.log_level, log_worker)
        schema.require(schema.check(used, pooler=settings.pooler))
        place = supervision.place if supervision is not None else 0
        with watching(replace(settings, dsn=used), systemd, place) as ops:
            if supervision is not None:
                supervision.greet(Greeting(used, is_local))
            code = run(
                loaded,
                replace(settings, dsn=used),
                label=target,
                supervision=supervision,
                child_command=child_command,
                child_folder=child_folder,
                ops=ops,
                on_recycle=end_on_signals if supervision is None else lambda: None,
            )
        if code == EXIT_RECYCLE and supervision is None:
            # Here, where the local server is still held.
            rebirth.again()
            code = EXIT_FAILURE
    return code


@contextmanager
def _database_of(app: App, dsn: str, *, notes: bool) -> Iterator[tuple[str, bool]]:
    """Give the connection string to work on, and whether it is the local server's.

    It is the flag's, else the app's own, else the local server's.

    It is also what the app's handlers enqueue through, unless their app names another.
    """
    if dsn:
        os.environ[DSN_VARIABLE] = dsn
        yield dsn, False
        return
    try:
        own = app.dsn
    except ConfigError:
        own = None
    with nullcontext(own) if own else database(None, notes=notes) as used:
        os.environ[DSN_VARIABLE] = used
        yield used, own is None
