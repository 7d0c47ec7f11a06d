"""What becomes of a supervised worker's place when its process has ended: decisions, no effects."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from pgtasks.engine.departure import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_RECYCLE

# A process that lived for this long had a life; its successor begins at once.
LIVED_S_MIN = 10.0
DELAY_S_MIN, DELAY_S_MAX = 1.0, 30.0
# The exit codes of a wrong setting or app and of a wrong schema (pgtasks/cli/exits.py). Starting
# again does not help; somebody has to change something, and this command is then run anew.
PERMANENT = frozenset({2, 5})
# Of several exit codes the one that says most, worst last; any other counts as a failure.
_WORSE = (EXIT_OK, EXIT_FAILURE, 4, 3, 5, 2, EXIT_INTERRUPTED)


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended: its exit code, negative for a signal, and what is known of its life.

    ``begun`` says that it got as far as being a worker; ``short_lives`` is how many of its
    predecessors in the same place died young, one after the other.
    """

    code: int
    lived_s: float
    begun: bool
    short_lives: int

    @property
    def signal_name(self) -> str | None:
        """Name the signal that killed it, None when it ended by an exit code."""
        if self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


@dataclass(frozen=True, slots=True)
class Restart:
    """Another process takes its place, after a time."""

    delay_s: float
    short_lives: int


@dataclass(frozen=True, slots=True)
class Retire:
    """The place stays empty."""


def after_end(end: End, *, proven: bool, draining: bool, rng: random.Random) -> Restart | Retire:
    """Decide about the place of a process that has ended although nobody told the supervisor to stop.

    Until some process has been a worker once (``proven``), an exit code says what is wrong with the
    command line, the app or the database, as it does without a supervisor, and is not tried again.
    A drain is done with 0; with 1 it was given up, for a reason that it has said. Whoever ends
    otherwise with 0 was told to stop, but not through us: that is how one is replaced.
    """
    if end.code >= 0 and not proven:
        return Retire()
    if draining and end.code in {EXIT_OK, EXIT_FAILURE}:
        return Retire()
    if end.lived_s >= LIVED_S_MIN or (end.begun and end.code == EXIT_RECYCLE):
        return Restart(0.0, 0)
    delay_s = DELAY_S_MIN * 2.0 ** min(end.short_lives, 16) * (0.8 + 0.4 * rng.random())
    return Restart(min(DELAY_S_MAX, delay_s), end.short_lives + 1)


def is_hopeless(last_codes: Iterable[int | None]) -> bool:
    """Tell whether every place's last process ended with a code that no restart can change."""
    return all(code in PERMANENT for code in last_codes)


def exit_code(last_codes: Iterable[int | None], *, interrupted: bool) -> int:
    """Give the supervisor's exit code: 0 when all ended with 0, else the worst that says something."""
    if interrupted:
        return EXIT_INTERRUPTED
    codes = {code for code in last_codes if code is not None and code != EXIT_RECYCLE}
    return max((code if code in _WORSE else EXIT_FAILURE for code in codes), key=_WORSE.index, default=EXIT_OK)
