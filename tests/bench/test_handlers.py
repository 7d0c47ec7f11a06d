"""`./dev bench handlers` runs each kind of handler, and sets its rate against what its slots could do."""

import pytest

from bench import database, together
from bench.report import Figures
from bench.scenario import Outcome, Plan
from bench.scenarios import handlers


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_each_figure_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here for one case; every case has its keys."""
    monkeypatch.setattr(handlers, "CASES", [("sync", 10)])
    monkeypatch.setattr(together, "SETTLE_S", 0.0)
    outcome = Outcome()
    with database.started() as bench:
        handlers.measure(bench, Plan(tasks=60, rounds=1, seconds=1.0), outcome)
    figures: Figures = outcome.rounds[0]
    assert {key.name for key in handlers.KEYS if "_sync_10ms" in key.name} <= figures.keys()
    rate, share = figures["rate_sync_10ms"], figures["share_of_ideal_sync_10ms"]
    assert rate is not None
    assert share == pytest.approx(rate / 5000)
    # Two waves of 50 and 10 handlers take 20 ms at least.
    assert 0 < rate < 60 / 0.02
