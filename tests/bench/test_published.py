"""What docs/benchmarks.md says is what was measured, by the rules that the page states."""

from __future__ import annotations

import pytest

from bench import published
from bench.report import at
from bench.scenarios import SCENARIOS


@pytest.mark.parametrize("scenario", published.names(SCENARIOS))
def test_the_page_has_the_table_of_the_committed_result(scenario: str) -> None:
    """`./dev bench tables` would change nothing."""
    page = published.PAGE.read_text(encoding="utf-8")
    assert published.filled(page, scenario, SCENARIOS[scenario]) == page, "run: ./dev bench tables"


@pytest.mark.parametrize("scenario", published.names(SCENARIOS))
def test_the_committed_result_is_one_to_be_published(scenario: str) -> None:
    """It was measured with the defaults, on a durable server, and has every figure."""
    document, plan = published.read(scenario), SCENARIOS[scenario].plan
    assert (document["tasks"], len(document["rounds"])) == (plan.tasks, plan.rounds)
    durable = ("fsync", "synchronous_commit", "full_page_writes")
    assert {document["settings"][name] for name in durable} == {"on"}
    assert document["missing"] == []
    keys = SCENARIOS[scenario].keys(tuple(document.get("rivals", ())))
    assert all(at(document, key.name) is not None for key in keys)


def test_the_committed_counts_keep_their_budgets() -> None:
    """No load of the machine excuses these."""
    budgets = published.read("drain")["budgets"]
    counts = ("claim_hot_ratio", "wal_bytes_per_task", "commits_per_task", "worker_cpu_us_per_task")
    assert all(budgets[name]["met"] for name in counts)
