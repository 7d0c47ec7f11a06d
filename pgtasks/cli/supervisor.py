"""`pgtasks worker --processes N`: how this command line starts each of the N workers."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence

from pgtasks.health.systemd import Systemd
from pgtasks.settings import WorkerSettings

_FLAG, _VARIABLE = "--processes", "PGTASKS_PROCESSES"


def supervise(settings: WorkerSettings, systemd: Systemd) -> int:
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
        herald = SystemdHerald(systemd, settings.processes)
        return supervisor.supervise(command, environment(os.environ), settings, join_local=join_local, herald=herald)


class SystemdHerald:
    """Tells systemd how the supervisor is; the watchdog hears from it as long as its loop goes round."""

    def __init__(self, systemd: Systemd, processes: int) -> None:
        self._systemd, self._processes = systemd, processes
        self._interval_s = systemd.watchdog_s / 3
        self._next_at = 0.0

    def ready(self) -> None:
        """Tell it that the work begins."""
        self._systemd.tell(READY="1", STATUS=f"keeps {self._processes} workers running")

    def stopping(self) -> None:
        """Tell it that the end begins."""
        self._systemd.tell(STOPPING="1", STATUS="waits for its workers to end")

    def beat(self) -> float | None:
        """Give a sign of life when it is time for one."""
        if not self._interval_s:
            return None
        now = time.monotonic()
        if now >= self._next_at:
            self._next_at = now + self._interval_s
            self._systemd.tell(WATCHDOG="1")
        return self._next_at


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
