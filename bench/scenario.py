"""What a scenario is: what it measures, how much of it by default, and the way from rounds to a document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench.database import Bench
from bench.report import Figures, Key


class Plan(NamedTuple):
    """How much is measured: tasks a run, rounds, seconds a run where time is the limit, and which rivals."""

    tasks: int
    rounds: int
    seconds: float = 0.0
    rivals: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What a scenario found: the figures of each round, facts beside them, and what could not be measured.

    A scenario fills it as it goes on. Where a run turns out not to be valid, it has the rounds before that one,
    which were.
    """

    rounds: list[Figures] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def no_rivals(*fixed: Key) -> Callable[[Sequence[str]], Sequence[Key]]:
    """Give the keys of a scenario that measures no rivals."""
    return lambda _rivals: fixed


@dataclass(frozen=True)
class Scenario:
    """One thing to measure.

    `summary` is what the list of scenarios says. `keys` gives the figures of the document, in
    the order they are shown, for the rivals measured beside us. `plan` is what the published
    figures were measured with; a plan without seconds takes none. `worker_command` is the
    measured worker's, as a person would type it, where there is one.
    """

    name: str
    summary: str
    keys: Callable[[Sequence[str]], Sequence[Key]]
    plan: Plan
    measure: Callable[[Bench, Plan, Outcome], None]
    has_rivals: bool = False
    worker_command: Sequence[str] = ()
