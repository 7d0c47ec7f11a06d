"""What a worker's forked children must not share with it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection


class _Fork:
    """Keeps a child that a handler forks apart from this process's signals.

    The child inherits the handlers and shares the socket that wakes the loop: a signal it gets
    would stop the worker, and would not end the child. It gets the default handlers back. In
    between the signals are blocked; they are delivered afterwards, to the right process.
    """

    def __init__(self) -> None:
        self._worker_pid = 0
        self._signals: frozenset[signal.Signals] = frozenset()
        self._masks = threading.local()

    def guard(self, signals: Collection[signal.Signals]) -> None:
        """Begin, in a process that has become a worker and handles these signals."""
        self._signals = frozenset(signals)
        if not self._worker_pid:
            os.register_at_fork(before=self._before, after_in_parent=self._unblock, after_in_child=self._in_child)
        self._worker_pid = os.getpid()

    def _before(self) -> None:
        self._masks.old = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.old)

    def _in_child(self) -> None:
        if os.getppid() == self._worker_pid:
            signal.set_wakeup_fd(-1)
            for number in self._signals:
                signal.signal(number, signal.SIG_DFL)
        self._unblock()


guard = _Fork().guard
