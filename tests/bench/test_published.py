"""What docs/benchmarks.md says is what was measured, by the rules that the page states."""

from __future__ import annotations

import re

import pytest

from bench import published
from bench.report import at
from bench.rivals import RIVALS
from bench.rivals.redis import RedisRival
from bench.scenarios import SCENARIOS

PAGE = published.PAGE.read_text(encoding="utf-8")
MEASURED = published.names(SCENARIOS)
# What PostgreSQL tells of a rival that uses it.
COUNTED = ("wal_bytes_per_task", "commits_per_task")


@pytest.mark.parametrize("scenario", MEASURED)
def test_the_page_has_the_tables_and_plots_of_the_committed_result(scenario: str) -> None:
    """`./dev bench tables` would change nothing."""
    assert published.filled(PAGE, scenario, SCENARIOS[scenario]) == PAGE, "run: ./dev bench tables"


def test_the_page_has_the_budgets_and_the_rivals_of_all_of_them() -> None:
    """Of each rival what was installed, how it was configured, and who says so."""
    assert published.filled_summary(PAGE, SCENARIOS) == PAGE, "run: ./dev bench tables"


def test_the_readme_says_what_was_measured() -> None:
    """Its few sentences about speed are made from the same results, and its plot is one of the page's."""
    readme = published.README.read_text(encoding="utf-8")
    assert published.filled_readme(readme) == readme, "run: ./dev bench tables"
    assert "(docs/pictures/bench-drain.svg)" in readme


def test_the_plots_are_those_of_the_committed_results() -> None:
    """Each is drawn from them, and none is left from before."""
    expected = published.plots(SCENARIOS)
    found = {path: path.read_text(encoding="utf-8") for path in published.PICTURES.glob(f"{published.PREFIX}*.svg")}
    assert found == expected, "run: ./dev bench tables"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_has_its_place_on_the_page(scenario: str) -> None:
    """A heading to link to, what is done, and the marks; nothing between them before it was measured."""
    heading, text = re.escape(scenario.capitalize()), r"\n\n[A-Z][^<]{100,}\n\n"
    assert re.search(rf"^## {heading}{text}<!-- {scenario} -->\n", PAGE, re.MULTILINE)
    between = PAGE.partition(f"<!-- {scenario} -->")[2].partition(f"<!-- end of {scenario} -->")[0]
    assert bool(between.strip()) is (scenario in MEASURED)


@pytest.mark.parametrize("scenario", MEASURED)
def test_the_committed_result_is_one_to_be_published(scenario: str) -> None:
    """With the defaults, on a durable server; all that it may lack, and says so, is a rival that could not run.

    And PostgreSQL's counters of one that does not use it.
    """
    document, plan = published.read(scenario), SCENARIOS[scenario].plan
    assert (document["tasks"], len(document["rounds"])) == (plan.tasks, plan.rounds)
    durable = ("fsync", "synchronous_commit", "full_page_writes")
    assert {document["settings"][name] for name in durable} == {"on"}
    rivals = tuple(document.get("rivals", ()))
    lacking = {line.partition(":")[0] for line in document["missing"]}
    assert lacking <= set(rivals)
    on_redis = [name for name in rivals if isinstance(RIVALS[name], RedisRival)]
    elsewhere = {f"rival.{name}.{figure}" for name in on_redis for figure in COUNTED}
    for key in SCENARIOS[scenario].keys(rivals):
        if not lacking & set(key.name.split(".")) and key.name not in elsewhere:
            assert at(document, key.name) is not None, key.name


def test_the_committed_counts_keep_their_budgets() -> None:
    """No load of the machine excuses these."""
    budgets = published.read("drain")["budgets"]
    counts = ("claim_hot_ratio", "wal_bytes_per_task", "commits_per_task", "worker_cpu_us_per_task")
    assert all(budgets[name]["met"] for name in counts)
