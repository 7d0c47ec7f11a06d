"""Rivals are measured in turns, and one that fails takes nothing but itself out of the run."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from bench.report import Figures
from bench.rivals import beside
from bench.rivals.rival import Rival, Unavailable

NAMES = ("first", "second", "third")


class Named:
    """All of a rival that these tests need."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name, self._error = name, error

    def install(self) -> None:
        """Fail as the test says."""
        if self._error is not None:
            raise self._error


@pytest.fixture
def bench() -> Any:
    """Nothing is measured here."""
    return None


def rivals(monkeypatch: pytest.MonkeyPatch, **errors: Exception) -> None:
    """Put stand-ins in the place of the real ones."""
    monkeypatch.setattr(beside, "RIVALS", {name: Named(name, errors.get(name)) for name in NAMES})


def test_their_order_turns_around(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one leaves of the machine is not always the same one's."""
    rivals(monkeypatch)
    field, order = beside.Field(bench, NAMES, []), []

    def measured(rival: Rival) -> Figures:
        order.append(rival.name)
        return {rival.name: 1.0}

    for _ in range(3):
        field.each(measured)
    assert order == [*NAMES, *reversed(NAMES), *NAMES]


def test_ratios_are_ours_to_theirs() -> None:
    """Of rates alone, and of those that there are."""
    theirs: Figures = {"rival.a.rate": 50.0, "rival.b.rate": None, "rival.a.worker_cpu_us_per_task": 7.0}
    assert beside.ratios(theirs, 100.0) == {"ratio_to.a": 2.0}
    assert beside.ratios(theirs, 25.0, "ratio_at_500_to") == {"ratio_at_500_to.a": 0.5}
    assert beside.ratios(theirs, None) == {}


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("it is\nbroken"),
        AssertionError("it is broken"),
        psycopg.OperationalError("it is\n\tbroken"),
        OSError("it is broken"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_one_that_fails_is_left_out(bench: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """From then on, and what it said is one line of what is missing; the others are measured."""
    rivals(monkeypatch, first=error)
    missing: list[str] = []
    field = beside.Field(bench, NAMES, missing)

    def measured(rival: Rival) -> Figures:
        if rival.name == "second":
            raise error
        return {rival.name: 1.0}

    assert field.each(measured) == field.each(measured) == {"third": 1.0}
    assert missing == ["first: it is broken", "second: it is broken"]
