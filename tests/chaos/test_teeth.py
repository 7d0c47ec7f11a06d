"""The suite has teeth: it sees each bug that is planted on purpose, and nothing where none is.

Each is a short run with real workers, the work and the faults that show that bug. Some of them always
run; all of them with PGTASKS_LONG_TESTS=1, which takes some minutes.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pgtasks.store import sql_files
from tests.chaos import checker, planted, stage
from tests.chaos.cluster import Cluster
from tests.chaos.planted import PLANTS
from tests.long import LONG

ALWAYS = (
    "unfenced_complete",
    "no_skip_locked",
    "sweep_ignores_attempts",
    "complete_before_run",
    "cron_without_unique",
    "release_charges_attempt",
)
LEASE_S, SWEEP_S = 1.0, 0.3
RUNS_MAX = 3
pytestmark = [pytest.mark.pg, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", autouse=True)
def _schema(cluster: Cluster) -> Iterator[None]:
    """Leave a schema without planted bugs to the tests that share the server."""
    yield
    stage.make_schema(cluster)


def short(duration_s: float) -> stage.Plan:
    """Return a run of two workers."""
    return stage.Plan(seed=1, duration_s=duration_s, faults=(), workers=2, lease_s=LEASE_S, sweep_s=SWEEP_S)


def judge(plan: stage.Plan, cluster: Cluster, folder: Path) -> list[checker.Violation]:
    """Make a run and return what is wrong with it."""
    folder.chmod(0o711)
    result = stage.run(plan, folder, cluster=cluster)
    assert not result.failures
    assert len(result.history.rows) > 10
    return checker.check(result.history)


@pytest.mark.parametrize("name", [name if name in ALWAYS else pytest.param(name, marks=LONG) for name in PLANTS])
def test_a_planted_bug_is_seen(name: str, cluster: Cluster, tmp_path: Path) -> None:
    """By one of the invariants that are there for it; some bugs need luck to show, so there are three runs at most."""
    bug = PLANTS[name]
    plan = stage.planted_plan(short(bug.duration_s), name)
    found: list[checker.Violation] = []
    for seed in range(1, RUNS_MAX + 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = judge(replace(plan, seed=seed), cluster, folder)
        if {one.invariant for one in found} & set(bug.seen_by):
            return
    raise AssertionError(f"not seen in {RUNS_MAX} runs; the last one found {found}")


@LONG
@pytest.mark.parametrize("name", PLANTS)
def test_the_same_run_without_the_bug_is_clean(name: str, cluster: Cluster, tmp_path: Path) -> None:
    """What was seen is the bug, and not the run."""
    bug = PLANTS[name]
    plan = replace(stage.planted_plan(short(bug.duration_s), name), plant=None, drain_s_max=60.0)
    assert judge(plan, cluster, tmp_path) == []


@pytest.mark.parametrize("name", PLANTS)
def test_a_bug_can_be_planted_where_it_is_meant_to_be(name: str) -> None:
    """What it changes is there; a bug that is not planted would pass for one that is not seen."""
    bug = PLANTS[name]
    for file, changes in bug.edits.items():
        text = sql_files.sql(file)
        for pattern, replacement in changes:
            assert planted.edited(text, file, pattern, replacement) != text
    assert bug.seen_by
    assert set(bug.seen_by) <= set(checker.INVARIANTS)
    assert bug.edits or bug.patch or bug.producers


def test_a_bug_whose_place_is_gone_is_not_planted_in_silence() -> None:
    """The message names the file, so that the plant is repaired."""
    with pytest.raises(LookupError, match=r"tasks_claim\.sql has no"):
        planted.edited("SELECT 1", "tasks_claim", "SKIP LOCKED", "")
