"""A short run of the whole suite: default faults, a fixed seed, and every invariant holds."""

from pathlib import Path

import pytest

from tests.chaos import checker, report, stage
from tests.chaos.nemesis import DEFAULT_FAULTS

pytestmark = [pytest.mark.pg, pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_short_run_with_the_default_faults_is_clean(tmp_path: Path) -> None:
    """Nothing lost, nothing done twice, nothing that only the log knows."""
    tmp_path.chmod(0o711)
    plan = stage.Plan(seed=1, duration_s=10.0, faults=DEFAULT_FAULTS, workers=3, stops=1, drain_s_max=200.0)
    result = stage.run(plan, tmp_path)
    assert not result.failures
    violations = checker.check(result.history)
    figures = report.figures(result.history, violations, result.faults)
    assert not violations, report.table(figures, violations)
    assert (figures["lost"], figures["completed_twice"]) == (0, 0)
    assert figures["completed"] > 50
    assert sum(result.faults.values()) >= 3
