"""Faults of worker processes: killed, frozen past their leases, asked to stop, and without a child."""

import os
import signal
from pathlib import Path
from random import Random

from tests.chaos.fleet import Fleet
from tests.chaos.nemesis.fault import Fault, Missed
from tests.database import wait_until

_STOP_S_MAX = 90.0
_CHILD_S_MAX = 5.0
# One that is killed as it starts has no task, and its worker waits longer each time before it starts the next.
_STARTING_S = 1.0
CHILD_MODULE = "pgtasks.cli.child"


class KillWorker(Fault):
    """SIGKILL of up to half of the workers at once; others take their places."""

    name = "kill_worker"
    lane = "workers"

    def strike(self, rng: Random) -> None:
        """Kill some and start as many."""
        for _ in range(rng.randint(1, max(1, self.target.fleet.count // 2))):
            self.target.fleet.kill(living(self.target.fleet, rng))
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
        self._paused = living(self.target.fleet, rng)
        try:
            self.target.fleet.pause(self._paused)
            self.last(1.2, 2.5, rng)
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
        index = living(self.target.fleet, rng)
        self.target.fleet.terminate(index)
        self.target.fleet.wait(index, _STOP_S_MAX)
        self.undo()

    def undo(self) -> None:
        """Start what is missing."""
        self.target.fleet.replace_dead()


class KillChild(Fault):
    """SIGKILL of one of the processes that run tasks of `executor="process"`; its worker starts another by itself."""

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
        try:
            os.kill(rng.choice(sorted(found)), signal.SIGKILL)
        except ProcessLookupError:
            raise Missed("the child has ended by itself") from None

    def undo(self) -> None:
        """The worker does that."""


def living(fleet: Fleet, rng: Random) -> int:
    """Choose a place whose worker is alive."""
    found = [index for index in range(fleet.count) if fleet.alive(index)]
    if not found:
        raise Missed("no worker is alive")
    return rng.choice(found)


def children_of(pid: int) -> list[int]:
    """Give the children of a worker that run tasks and are up; none where /proc does not tell (not Linux)."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    found = [int(child) for thread in threads for child in read_process(thread / "children").split()]
    return [child for child in found if _is_child(child) and _age_s(child) > _STARTING_S]


def read_process(path: Path | str) -> str:
    """Give what /proc says, nothing if the process is gone."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_child(pid: int) -> bool:
    return CHILD_MODULE in read_process(f"/proc/{pid}/cmdline").split("\0")


def _age_s(pid: int) -> float:
    fields = read_process(f"/proc/{pid}/stat").rpartition(")")[2].split()
    uptime = read_process("/proc/uptime").split()
    if not fields or not uptime:
        return 0.0
    return float(uptime[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
