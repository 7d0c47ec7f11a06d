"""`pgtasks worker --processes N`: how this command line starts each of the N workers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence

from pgtasks.settings import WorkerSettings

_FLAG, _VARIABLE = "--processes", "PGTASKS_PROCESSES"


def supervise(settings: WorkerSettings) -> int:
    """Keep the workers running until a signal or their end; gives the exit code."""
    from pgtasks.cli import logs
    from pgtasks.engine import supervisor

    logs.configure(settings.log_format, settings.log_level)
    with contextlib.ExitStack() as stack:

        def join_local() -> None:
            from pgtasks import embedded
            from pgtasks.cli.database import database

            # A worker uses it, so it is there; if it went just now, the workers start it again.
            with contextlib.suppress(embedded.EmbeddedError):
                stack.enter_context(database(None))

        command = [sys.executable, *without_processes(sys.orig_argv[1:])]
        return supervisor.supervise(command, environment(os.environ), settings, join_local=join_local)


def without_processes(argv: Sequence[str]) -> list[str]:
    """Give a command line without its --processes."""
    kept, skip = list[str](), False
    for word in argv:
        if not skip and word != _FLAG and not word.startswith(f"{_FLAG}="):
            kept.append(word)
        skip = word == _FLAG and not skip
    return kept


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Give an environment without PGTASKS_PROCESSES."""
    return {name: text for name, text in environ.items() if name != _VARIABLE}
