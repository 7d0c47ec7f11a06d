"""A process that turns into a new one of its kind: the same id, command line, environment and folder."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from pgtasks import events

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Rebirth:
    """What a process has to remember to become what it was at its start, when it makes this."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # A copy: the program puts things there for its handlers.
        self._environ = dict(environ)
        self._folder = Path.cwd()
        # The interpreter by its full path: the first word of the command line may be looked up elsewhere by now.
        self._command = [sys.executable, *sys.orig_argv[1:]]

    def again(self) -> None:
        """Turn into a new process; returns only if that cannot be done, which is said.

        Signals that come meanwhile wait, blocked, until the new program handles them and calls
        ``ready``. Threads end here and now. Descriptors close, but for those that somebody made
        inheritable; a lock that depends on one is taken anew by the new program.
        """
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        old = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            os.chdir(self._folder)
            os.execve(self._command[0], self._command, self._environ)  # noqa: S606 - our own command line, no shell
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
            events.error("worker could not start again", error=str(error), command=self._command[0])

    @staticmethod
    def ready() -> None:
        """Let the signals in that an earlier life of this process left blocked: now somebody handles them."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
