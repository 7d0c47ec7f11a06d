"""The nemesis strikes in each lane, counts, reports what failed, and undoes everything."""

import threading
from random import Random
from typing import Any, ClassVar, cast

import pytest

from tests.chaos.nemesis import DEFAULT_FAULTS, FAULTS, Fault, Missed, Nemesis, Target, faults
from tests.chaos.nemesis.fault import Lane
from tests.database import wait_until

_SOON_S = (0.0, 0.001)


class Recorded(Fault):
    """A fault that only says what is asked of it."""

    name = "recorded"
    lane: ClassVar[Lane] = "server"

    def __init__(self, name: str = "recorded", lane: Lane = "server", error: Exception | None = None) -> None:
        super().__init__(cast("Target", None))
        self.name, self.lane = name, lane  # type: ignore[misc]  # several kinds in one class
        self.error = error
        self.strikes = 0
        self.undone = threading.Event()
        self.lasting = False

    def strike(self, rng: Random) -> None:
        """Count, last, fail as asked."""
        self.undone.clear()
        self.strikes += 1
        if self.lasting:
            self.over.wait(60)
        if self.error is not None:
            raise self.error

    def undo(self) -> None:
        """Remember it."""
        self.undone.set()


def ignore(_name: str, _what: Any) -> None:
    """Take no notes."""


def test_lanes_do_not_wait_for_each_other() -> None:
    """While the server's fault lasts, workers are struck; the end does not wait for it either, and undoes both."""
    long, quick = Recorded("long"), Recorded("quick", "workers")
    long.lasting = True
    with Nemesis([long, quick], Random(1), ignore, pause_s=_SOON_S) as nemesis:
        wait_until(lambda: nemesis.counts["quick"] >= 10)
        assert long.strikes == 1
    assert nemesis.counts["long"] == 1
    assert long.undone.is_set()
    assert quick.undone.is_set()
    assert nemesis.failures == []


def test_the_same_seed_strikes_in_the_same_order() -> None:
    """Each has its turn before one has the next; whatever the threads do, each lane has its own random numbers."""
    orders = []
    for _ in range(2):
        order: list[str] = []
        names = ["a", "b", "c", "d"]
        with Nemesis(
            [Recorded(name) for name in names],
            Random(7),
            lambda name, what, to=order: to.append(name) if what == "begin" else None,  # type: ignore[misc]  # a default binds the list
            pause_s=_SOON_S,
        ):
            wait_until(lambda seen=order: len(seen) >= 20)  # type: ignore[misc]  # a default binds the list
        orders.append(order[:20])
    assert orders[0] == orders[1]
    assert all(set(orders[0][turn : turn + 4]) == {"a", "b", "c", "d"} for turn in range(0, 20, 4))


def test_what_could_not_strike_is_a_failure_of_the_run() -> None:
    """With its traceback, and undone; the nemesis goes on."""
    broken = Recorded("broken", error=RuntimeError("it did not break"))
    notes: list[tuple[str, str]] = []
    with Nemesis([broken], Random(1), lambda *note: notes.append(note), pause_s=_SOON_S) as nemesis:
        wait_until(lambda: broken.strikes >= 2)
    assert nemesis.counts["broken"] == 0
    assert "it did not break" in nemesis.failures[0]
    assert broken.undone.is_set()
    assert notes[:2] == [("broken", "begin"), ("broken", "end")]


def test_a_miss_is_neither_a_failure_nor_an_occurrence() -> None:
    """It is counted by itself."""
    missing = Recorded("missing", error=Missed("nothing there"))
    with Nemesis([missing], Random(1), ignore, pause_s=_SOON_S) as nemesis:
        wait_until(lambda: nemesis.missed["missing"] >= 2)
    assert nemesis.counts["missing"] == 0
    assert nemesis.failures == []


def test_the_default_faults_need_no_privileges() -> None:
    """One server and proxies are all they need; each fault has one name and a sentence about it."""
    assert len(DEFAULT_FAULTS) >= 15
    assert {need for name in DEFAULT_FAULTS for need in FAULTS[name].needs} <= {"proxy"}
    assert all(kind.name == name and kind.__doc__ for name, kind in FAULTS.items())


def test_an_unknown_fault_names_the_known_ones() -> None:
    """Before anything has started."""
    with pytest.raises(ValueError, match="kill_worker"):
        faults(["meteorite"], cast("Target", None))
