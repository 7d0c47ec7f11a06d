"""The clock of a worker's machine that is two hours off."""

import os
from pathlib import Path
from random import Random

from tests.chaos.nemesis.fault import Fault
from tests.database import ROOT

SHIFT_S = 7200.0
# Holds a sitecustomize.py, which every Python process on this path loads first: it works with any launcher.
_FOLDER = Path(__file__).parents[1] / "clock"


class WorkerClock(Fault):
    """A worker whose wall clock is two hours ahead or behind for a while.

    Shifted within Python, where all of a worker's clocks are read. libfaketime would shift CLOCK_MONOTONIC too, on
    which the histories of all processes are ordered, and without that it breaks `time.sleep`.
    """

    name = "worker_clock"
    lane = "workers"
    _shifted: int | None = None

    def strike(self, rng: Random) -> None:
        """Replace one worker by a shifted one for two to four leases."""
        self._shifted = rng.randrange(self.target.fleet.count)
        try:
            self.target.fleet.restart(self._shifted, **shifted(rng.choice((-SHIFT_S, SHIFT_S))))
            self.last(2.0, 4.0, rng)
        finally:
            self.undo()

    def undo(self) -> None:
        """Replace it by one whose clock is right."""
        if self._shifted is not None:
            self.target.fleet.restart(self._shifted)
            self._shifted = None


def shifted(seconds: float) -> dict[str, str]:
    """Give the variables that shift the wall clock of a Python program."""
    return {"PYTHONPATH": os.pathsep.join((str(_FOLDER), str(ROOT))), "CHAOS_CLOCK_SHIFT_S": str(seconds)}
