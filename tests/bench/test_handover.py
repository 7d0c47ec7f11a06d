"""The benchmark of hand-overs to a child process runs."""

import pytest

from bench import handover
from tests.database import ROOT


async def test_it_measures_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a few tasks."""
    monkeypatch.chdir(ROOT)
    rounds = await handover.measure(20)
    assert len(rounds) == handover.ROUNDS
    assert all(each["tasks_s"] > 0 for each in rounds)
