"""The scenarios under load measure every figure that they name; with a few tasks, which are no measurement."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench import cpu, series, steady, together
from bench.apps import mixed
from bench.database import Bench
from bench.report import at, document
from bench.scenario import Outcome, Plan
from bench.scenarios import SCENARIOS, contention, delayed, features, soak
from pgtasks import schema
from tests.database import Connection, Server
from tests.long import LONG

pytestmark = [pytest.mark.pg, pytest.mark.slow, pytest.mark.timeout(60)]

PLANS = {
    "field": Plan(tasks=300, rounds=1, seconds=1),
    "held": Plan(tasks=4_000, rounds=1, seconds=1),
    "retries": Plan(tasks=300, rounds=1),
    "delayed": Plan(tasks=200, rounds=1),
    "soak": Plan(tasks=300, rounds=1, seconds=1.5),
    "contention": Plan(tasks=300, rounds=1),
    "features": Plan(tasks=100, rounds=1),
}
# A tenth of so short a time may pass without a start, or a claim.
MAY_LACK = {
    "soak": {
        f"{figure}_{tenth}_tenth"
        for figure in ("lateness_p99_ms", "lateness_from_plan_p99_ms", "claim_p99_ms")
        for tenth in ("first", "last")
    }
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
    scenario, plan, outcome = SCENARIOS[name], PLANS[name], Outcome()
    scenario.measure(bench, plan, outcome)
    keys = scenario.keys(())
    made = document(name, keys, outcome.rounds, outcome.facts, outcome.missing)
    lacking = {key.name for key in keys if at(made, key.name) is None} - MAY_LACK.get(name, set())
    assert not lacking or not cpu.is_supported()
    assert made["rounds"]


def test_a_late_batch_counts_from_its_planned_moment(server: Server, connection: Connection) -> None:
    """Of the tasks that started in a span: not the delayed ones, and none that was tried again."""
    sent = steady.Sent({"steady": 2}, planned_s=[1_000.0, 1_000.5, 1_001.0], called_s=[1_000.0, 1_002.5, 1_002.9])
    assert sent.late_s == pytest.approx([0.0, 2.0, 1.9])
    for created_s, run_s, started_s, attempt in (
        (1_000.1, 1_000.1, 1_000.2, 1),
        (1_002.6, 1_002.55, 1_002.75, 1),
        (1_002.6, 1_003.0, 1_010.0, 1),
        (1_002.6, 1_002.6, 1_010.0, 2),
        (1_002.95, 1_002.94, 1_003.0, 1),
    ):
        connection.execute(
            "INSERT INTO pgtasks.history (id, created_at, run_at, started_at, attempt, priority, status, queue, name,"
            " payload) SELECT 1, to_timestamp(%s), to_timestamp(%s), to_timestamp(%s), %s, 0, 'completed', 'default',"
            " 'noop', '{}'",
            (created_s, run_s, started_s, attempt),
        )
    bench = Bench(server.private, connection)
    found = [soak.from_plan_p99_ms(bench, sent, start, end) for start, end in ((1_000, 1_001), (1_001, 1_011), (0, 1))]
    assert found == [pytest.approx(200), pytest.approx(2_250), None]


def test_a_producer_says_when_each_batch_was_meant_to_be(
    dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A batch that was slow delays the calls of those after it, and not their planned moments."""
    slow = iter([0.2])

    def enqueue_many(_tasks: object) -> None:
        time.sleep(next(slow, 0.0))  # stands for a database that does not answer

    monkeypatch.setattr(mixed.app, "enqueue_many", enqueue_many)
    tmp_path.joinpath("sent.json").write_text(json.dumps(steady.run(10, 0.1)._asdict()), encoding="utf-8")
    sent = steady.read(tmp_path / "sent.json")
    assert sum(sent.counts.values()) == 10
    assert len(sent.planned_s) == len(sent.called_s) == 5
    planned = [moment - sent.planned_s[0] for moment in sent.planned_s]
    assert planned == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08], abs=0.005)
    assert min(sent.late_s[1:]) > 0.1


def test_what_the_harness_asks_is_nobodys_commit(server: Server, fresh_database: str) -> None:
    """However often it looks; those of others count."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        asking = together.Asking(server.private, connection)
        before = asking.commits_of_others()
        for number in range(300):
            asking.value("SELECT %s::integer", number)
        assert 0 <= asking.commits_of_others() - before < 30, "autovacuum may have been there"
        with psycopg.connect(fresh_database, autocommit=True) as other:
            for _ in range(50):
                other.execute("SELECT 1")
            other.execute("SELECT pg_stat_force_next_flush()")
        assert 50 <= asking.commits_of_others() - before < 90


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
