"""`python -m bench` measures, and prints one document whose keys stay."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from bench import cpu
from bench.cpu import Sample
from bench.report import Budget
from tests.database import ROOT
from tests.workers import environment

DRAIN_KEYS = {
    "rate",
    "sql_loop_rate",
    "ratio_to_sql_loop",
    "worker_cpu_us_per_task",
    "backend_cpu_us_per_task",
    "claim_hot_ratio",
    "wal_bytes_per_task",
    "commits_per_task",
    "fsync_ms",
}
HORIZON_KEYS = {
    "claim_us_first_tenth",
    "claim_us_last_tenth",
    "last_to_first",
    "rate",
    "rate_without_held_transaction",
}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m bench` as a person does."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize(("scenario", "keys"), [("drain", DRAIN_KEYS), ("horizon", HORIZON_KEYS)])
def test_a_scenario_prints_one_document(scenario: str, keys: set[str]) -> None:
    """It has every key, with a figure, and says where and how it was measured."""
    # In a shorter run there may be no sample of the server's processes, where others want the same cores.
    done = bench(scenario, "--json", "--tasks", "60000", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert keys <= document.keys()
    readable = cpu.is_supported()
    assert all(document[key] is not None for key in keys if readable or not key.endswith(("_tenth", "_first")))
    assert document["settings"]["fsync"] == document["settings"]["synchronous_commit"] == "on"
    assert document["machine"]["cores"] > 0
    assert len(document["rounds"]) == 1
    assert set(document["spread"]) >= keys


def test_without_a_scenario_it_lists_them() -> None:
    """A newcomer sees what there is."""
    done = bench()
    assert done.returncode == 0
    assert "drain" in done.stdout
    assert "horizon" in done.stdout


def test_an_unknown_scenario_is_a_usage_error() -> None:
    """The message names the ones that exist."""
    done = bench("drian")
    assert done.returncode == 2
    assert "drain" in done.stderr


def test_cpu_time_is_read_between_two_samples() -> None:
    """The moments asked for lie between samples, and outside of them the nearest one counts."""
    samples = [Sample(10.0, 1.0), Sample(11.0, 2.0), Sample(13.0, 2.5)]
    assert cpu.between(samples, 10.5, 12.0) == pytest.approx(0.75)
    assert cpu.between(samples, 0.0, 99.0) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("budget", "value", "met"),
    [
        (Budget(least=0.7), 0.7, True),
        (Budget(least=0.7), 0.69, False),
        (Budget(most=35), 35.0, True),
        (Budget(most=35), 35.1, False),
        (Budget(most=35), None, None),
    ],
)
def test_a_budget_is_met_or_not(*, budget: Budget, value: float | None, met: bool | None) -> None:
    """Its limit itself is allowed; without a figure there is no verdict."""
    assert budget.is_met(value) is met
