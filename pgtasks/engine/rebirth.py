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

        A signal is blocked in this thread alone. Another one, that of a handler which does not end,
        may get it until it is gone. With a handler of Python's the signal would be forgotten there,
        so it has its default effect: it ends the process. What remains is process 1 of a container,
        which the kernel spares default effects: a signal in the moment between the last two calls
        here that such a thread gets is lost, and has to be sent again.
        """
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            os.chdir(self._folder)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            os.execve(self._command[0], self._command, self._environ)  # noqa: S606 - our own command line, no shell
        except OSError as error:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            events.error("worker could not start again", error=str(error), command=self._command[0])

    @staticmethod
    def ready() -> None:
        """Let the signals in that an earlier life of this process left blocked: now somebody handles them."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
