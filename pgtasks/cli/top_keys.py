"""The terminal while it is ours: keys one by one, signals in the same queue, and its state put back.

Keys are read from standard input in cbreak mode, in which the terminal still turns Ctrl-C and
Ctrl-Z into signals. SIGTERM and SIGHUP end the program as Ctrl-C does, by an exception, so that
every `with` on the way out puts back what it changed. The other signals only wake `wait`.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Self

from pgtasks.cli.exits import Terminated

_READ_BYTES = 1024
_SEQUENCE = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|\x1b\x1b?|.", re.DOTALL)
_NAMES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\t": "tab",
    b"\x1b": "escape",
}
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_WAKING = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Woken:
    """Why `wait` came back: keys, signals, or a call of `wake` or its time limit when both are empty."""

    keys: tuple[str, ...] = ()
    signals: frozenset[int] = frozenset()


def keys_of(typed: bytes) -> tuple[str, ...]:
    """Name the keys that some bytes of a terminal stand for; what we know no name for is an empty one."""
    return tuple(_name(found[0]) for found in _SEQUENCE.finditer(typed))


def _name(sequence: bytes) -> str:
    if sequence in _NAMES:
        return _NAMES[sequence]
    return sequence.decode() if len(sequence) == 1 and b" " <= sequence <= b"~" else ""


class Terminal:
    """Standard input as keys. A context manager for the signals; `grabbed` is one for the mode."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._input)

    def __enter__(self) -> Self:
        """Take the signals."""
        self._woken, self._waking = os.pipe()
        for end in (self._woken, self._waking):
            os.set_blocking(end, False)
        self._handlers = {number: signal.signal(number, _end) for number in _ENDING}
        self._handlers |= {number: signal.signal(number, _note) for number in _WAKING}
        self._wakeup = signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        # The pipe stays open: a thread that still waits for the database may wake nobody with it.

    @contextmanager
    def grabbed(self) -> Iterator[None]:
        """Have keys come one by one and unseen, until the block ends."""
        tty.setcbreak(self._input, termios.TCSADRAIN)
        try:
            yield
        finally:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def wait(self, timeout_s: float) -> Woken:
        """Wait for keys, signals or a call of `wake`; raises EOFError when the terminal is gone."""
        ready, _, _ = select.select([self._input, self._woken], [], [], max(0.0, timeout_s))
        woken = frozenset(os.read(self._woken, _READ_BYTES)) - {0} if self._woken in ready else frozenset()
        if self._input not in ready:
            return Woken(signals=woken)
        try:
            typed = os.read(self._input, _READ_BYTES)
        except OSError as error:
            raise EOFError from error
        if not typed:
            raise EOFError
        return Woken(keys_of(typed), woken)

    def wake(self) -> None:
        """Have `wait` come back; for another thread."""
        try:
            os.write(self._waking, b"\0")
        except BlockingIOError:
            return  # It is full of reasons to wake up.

    def suspend(self) -> None:
        """Stop this process as Ctrl-Z does, until somebody continues it."""
        ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            os.kill(os.getpid(), signal.SIGTSTP)
        finally:
            signal.signal(signal.SIGTSTP, ours)


def _end(number: int, _: FrameType | None) -> None:
    raise Terminated(128 + number)


def _note(_: int, __: FrameType | None) -> None:
    """Do nothing: the number has gone through the wakeup descriptor."""
