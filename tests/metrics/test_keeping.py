"""Facts are read seldom, however often they are asked for, and the last ones outlive a failure."""

import threading

import pytest

from pgtasks.errors import DatabaseUnavailable, SchemaMissing
from pgtasks.metrics import facts
from pgtasks.metrics.facts import KEPT_S, FactsKeeper
from pgtasks.store.facts import Facts

FACTS = Facts({}, 0.0, 0, 0.0)


class Source:
    """Gives facts, or raises, as told; counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def read(self) -> Facts:
        """Answer when it may."""
        self.reads += 1
        self.may_answer.wait(10)
        if self.error is not None:
            raise self.error
        return FACTS

    def close(self) -> None:
        """Nothing to close."""


class Clock:
    """A clock that moves when told."""

    now = 1000.0

    def __call__(self) -> float:
        """Give the time."""
        return self.now


def test_many_pages_cost_one_reading() -> None:
    """B-03: also those that are asked for at the same moment."""
    source, clock = Source(), Clock()
    with FactsKeeper(source, clock) as keeper:
        assert source.reads == 0
        pages = [threading.Thread(target=keeper.known) for _ in range(20)]
        for page in pages:
            page.start()
        for page in pages:
            page.join()
        clock.now += KEPT_S - 1
        known = keeper.known()
        assert source.reads == 1
        assert known.facts is FACTS
        assert known.age_s == KEPT_S - 1
        clock.now += 2
        assert keeper.known().age_s == 0
        assert source.reads == 2


def test_a_failure_keeps_the_last_facts_and_is_counted() -> None:
    """And is not tried again before its time."""
    source, clock = Source(), Clock()
    with FactsKeeper(source, clock) as keeper:
        keeper.known()
        source.error = DatabaseUnavailable("gone\nfor good")
        clock.now += KEPT_S
        known = keeper.known()
        assert (known.facts, known.age_s, known.errors) == (FACTS, KEPT_S, 1)
        assert known.problem == "database: gone"
        assert keeper.schema_problem() is None
        assert keeper.known().errors == 1
        source.error = SchemaMissing("no schema")
        clock.now += KEPT_S
        assert keeper.known().errors == 2
        assert keeper.schema_problem() == "schema: no schema"
        source.error = None
        clock.now += KEPT_S
        assert keeper.known().problem is None


def test_a_page_does_not_wait_long_for_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what there was."""
    monkeypatch.setattr(facts, "WAIT_S", 0.05)
    source, clock = Source(), Clock()
    with FactsKeeper(source, clock) as keeper:
        keeper.known()
        source.may_answer.clear()
        clock.now += KEPT_S * 2
        known = keeper.known()
        assert (known.facts, known.age_s, known.errors) == (FACTS, KEPT_S * 2, 0)
        source.may_answer.set()
