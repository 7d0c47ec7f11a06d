"""Faults of worker processes: killed, frozen past their leases, asked to stop, and without a child."""

import os
import signal
import time
from pathlib import Path
from random import Random

from tests.chaos.nemesis.fault import Fault, Missed
from tests.database import wait_until

_STOP_S_MAX = 90.0
_CHILD_S_MAX = 5.0
CHILD_MODULE = "pgtasks.cli.child"


class KillWorker(Fault):
    """SIGKILL of up to half of the workers at once; others take their places."""

    name = "kill_worker"
    lane = "workers"

    def strike(self, rng: Random) -> None:
        """Kill some and start as many."""
        fleet = self.target.fleet
        for index in rng.sample(range(fleet.count), rng.randint(1, max(1, fleet.count // 2))):
            fleet.kill(index)
        self.undo()

    def undo(self) -> None:
        """Start what is missing."""
        self.target.fleet.replace_dead()


class PauseWorker(Fault):
    """SIGSTOP for longer than the lease, then SIGCONT: a zombie that believes its tasks are still its own."""

    name = "pause_worker"
    lane = "workers"
    _paused: int | None = None

    def strike(self, rng: Random) -> None:
        """Freeze one worker for 1.2 to 2.5 leases."""
        self._paused = rng.randrange(self.target.fleet.count)
        try:
            self.target.fleet.pause(self._paused)
            time.sleep(self.target.lease_s * rng.uniform(1.2, 2.5))  # how long it is frozen is the fault
        finally:
            self.undo()

    def undo(self) -> None:
        """Let it go on."""
        if self._paused is not None:
            self.target.fleet.resume(self._paused)
            self._paused = None


class TerminateWorker(Fault):
    """SIGTERM, as in a deployment; `Fleet.exits` tells how it ended."""

    name = "terminate_worker"
    lane = "workers"

    def strike(self, rng: Random) -> None:
        """Ask one worker to stop, wait for its end, start another."""
        index = rng.randrange(self.target.fleet.count)
        self.target.fleet.terminate(index)
        self.target.fleet.wait(index, _STOP_S_MAX)
        self.undo()

    def undo(self) -> None:
        """Start what is missing."""
        self.target.fleet.replace_dead()


class KillChild(Fault):
    """SIGKILL of a process that runs one task of `executor="process"`; its worker starts another by itself."""

    name = "kill_child"
    lane = "workers"
    needs = ("children",)

    def strike(self, rng: Random) -> None:
        """Kill one child of any worker."""
        found: list[int] = []

        def find() -> bool:
            found[:] = [child for pid in self.target.fleet.pids() for child in children_of(pid)]
            return bool(found)

        try:
            wait_until(find, _CHILD_S_MAX)
        except AssertionError:
            raise Missed("no worker has a child") from None
        os.kill(rng.choice(sorted(found)), signal.SIGKILL)

    def undo(self) -> None:
        """The worker does that."""


def children_of(pid: int) -> list[int]:
    """Give the process ids of a worker's children that run tasks; none where /proc does not tell (not Linux)."""
    try:
        found = [
            int(child) for path in Path(f"/proc/{pid}/task").iterdir() for child in _read(path / "children").split()
        ]
    except OSError:
        return []
    return [child for child in found if CHILD_MODULE in _read(Path(f"/proc/{child}/cmdline")).split("\0")]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
