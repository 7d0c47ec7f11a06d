"""The thread that lets faults strike at random moments, and puts everything right in the end."""

import atexit
import threading
import time
import traceback
import types
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, Self

from tests.chaos.nemesis.fault import Fault, Missed

# Called with a fault's name as it begins and as it is over, from the threads of the nemesis.
Note = Callable[[str, Literal["begin", "end"]], None]
# The longest that one strike may take; all of them are over much sooner on a quiet machine.
STRIKE_S_MAX = 120.0


class Nemesis:
    """Lets these faults strike in a random order at random intervals from `start` to `stop`.

    One thread for each lane, so that a worker is killed while the server restarts, but nothing strikes the server
    twice at once. The same seed strikes with the same faults in the same order. A context manager; `failures` has
    the traceback of each fault that could not strike or be undone, which makes the run invalid.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        rng: Random,
        note: Note,
        *,
        pause_s: tuple[float, float] = (0.2, 2.0),
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.failures: list[str] = []
        self._faults, self._note, self._pause_s = list(faults), note, pause_s
        self._stopping = threading.Event()
        lanes = sorted({fault.lane for fault in faults})
        self._threads = [
            threading.Thread(target=self._run, args=(lane, Random(rng.random())), name=f"nemesis-{lane}", daemon=True)
            for lane in lanes
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin; the first faults strike after a random pause."""
        atexit.register(self.undo)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the strikes under way, then undo everything. May be called again."""
        self._stopping.set()
        for fault in self._faults:
            fault.over.set()
        deadline = time.monotonic() + STRIKE_S_MAX
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.failures.append(f"{thread.name} did not end within {STRIKE_S_MAX:g} s")
        self.undo()
        atexit.unregister(self.undo)

    def undo(self) -> None:
        """Undo every fault, whether it has struck or not."""
        for fault in self._faults:
            self._guarded(fault, fault.undo)

    def _run(self, lane: str, rng: Random) -> None:
        faults = [fault for fault in self._faults if fault.lane == lane]
        left: list[Fault] = []
        while not self._stopping.wait(rng.uniform(*self._pause_s)):
            # Like cards: each has its turn before one has the next, so that short runs see all of them.
            left = left or rng.sample(faults, len(faults))
            self._strike(left.pop(), rng)

    def _strike(self, fault: Fault, rng: Random) -> None:
        self._note(fault.name, "begin")
        try:
            if self._guarded(fault, lambda: fault.strike(rng)):
                self.counts[fault.name] += 1
            else:
                self._guarded(fault, fault.undo)
        finally:
            self._note(fault.name, "end")

    def _guarded(self, fault: Fault, work: Callable[[], None]) -> bool:
        try:
            work()
        except Missed:
            self.missed[fault.name] += 1
            return False
        except Exception:  # noqa: BLE001 - whatever it is, it belongs into the report of the run
            self.failures.append(f"{fault.name}:\n{traceback.format_exc()}")
            return False
        return True
