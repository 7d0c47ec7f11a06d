"""The scenarios under load measure every figure that they name; with a few tasks, which are no measurement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from bench import cpu, series, steady, together
from bench.database import Bench
from bench.report import at, document
from bench.scenario import Plan
from bench.scenarios import SCENARIOS, contention, delayed, features
from pgtasks import schema
from tests.long import LONG

pytestmark = [pytest.mark.pg, pytest.mark.slow, pytest.mark.timeout(60)]

PLANS = {
    "held": Plan(tasks=4_000, rounds=1, seconds=1),
    "retries": Plan(tasks=300, rounds=1),
    "delayed": Plan(tasks=200, rounds=1),
    "soak": Plan(tasks=300, rounds=1, seconds=1.5),
    "contention": Plan(tasks=300, rounds=1),
    "features": Plan(tasks=100, rounds=1),
}
# A tenth of so short a time may pass without a start, or a claim.
MAY_LACK = {
    "soak": {f"{figure}_{tenth}_tenth" for figure in ("lateness_p99_ms", "claim_p99_ms") for tenth in ("first", "last")}
    | {"claim_p99_last_to_first"}
}


@pytest.fixture(scope="module")
def bench(server: Any) -> Iterator[Bench]:
    """The test server's own database, migrated, as the harness has it."""
    schema.migrate(server.private.dsn)
    with psycopg.connect(server.private.dsn, autocommit=True) as connection:
        yield Bench(server.private, connection)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[LONG] if name in {"contention", "features"} else []) for name in PLANS],
)
def test_it_has_every_figure(bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a document that has none missing; nothing was lost, or it would have said so."""
    monkeypatch.setattr(together, "SETTLE_S", 0.1)
    monkeypatch.setattr(delayed, "LEAD_S", 2.5)
    monkeypatch.setattr(contention, "COUNTS", {1: "one", 2: "two", 3: "ten"})
    scenario, plan = SCENARIOS[name], PLANS[name]
    outcome = scenario.measure(bench, plan)
    keys = scenario.keys(())
    made = document(name, keys, outcome.rounds, outcome.facts, outcome.missing)
    lacking = {key.name for key in keys if at(made, key.name) is None} - MAY_LACK.get(name, set())
    assert not lacking or not cpu.is_supported()
    assert made["rounds"]


def test_each_feature_has_a_task_or_a_setting_of_its_own() -> None:
    """A variant that is like the plain one would measure nothing."""
    plain = features.Variant("nothing")
    assert all(variant._replace(meaning="nothing") != plain for variant in features.VARIANTS.values())


def test_a_quantile_lies_within_its_bucket() -> None:
    """As far into it as its share of the bucket's counts."""
    counts = {"0.001": 50, "0.002": 90, "0.004": 100, "+Inf": 100}
    assert series.quantile(counts, 0.5) == pytest.approx(0.001)
    assert series.quantile(counts, 0.7) == pytest.approx(0.0015)
    assert series.quantile(counts, 0.99) == pytest.approx(0.0038)
    assert series.quantile({"0.001": 0, "+Inf": 4}, 0.5) == pytest.approx(0.001)
    assert series.quantile({"0.001": 0, "+Inf": 0}, 0.5) is None


def test_a_steady_load_has_each_kind_of_task_in_its_share() -> None:
    """Of any hundred tasks that follow each other."""
    kinds = [steady.task(number)[0] for number in range(1_000, 1_100)]
    assert {kind: kinds.count(kind) for kind in kinds} == {"delayed": 4, "flaky": 5, "doomed": 1, "steady": 90}
