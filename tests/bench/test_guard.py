"""`./dev bench guard` sees what costs more than it did, and is not alarmed by noise."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import guard, plans
from tests.database import ROOT
from tests.long import LONG
from tests.workers import environment

COMMITTED: dict[str, Any] = json.loads(guard.COMMITTED.read_text(encoding="utf-8"))
COSTS = [figure.name for figure in guard.FIGURES if not figure.least]
REGRESSED = 1


def judged(tmp_path: Path, measured: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Let the guard judge a document instead of measuring; gives its exit code and what it says."""
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(measured), encoding="utf-8")
    code = guard.main(["--json", "--measured", str(file)])
    return code, json.loads(capsys.readouterr().out)


def changed(**factors: float) -> dict[str, Any]:
    """Give the committed document with some figures multiplied."""
    document = copy.deepcopy(COMMITTED)
    for name, factor in factors.items():
        document["figures"][name] *= factor
    return document


@pytest.mark.parametrize("text", [None, "no JSON", "[]", "{}"])
@pytest.mark.parametrize("option", ["--measured", "--against"])
def test_a_file_that_cannot_be_used_is_no_regression(
    option: str, text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, with exit code 2, before anything is measured."""
    file = tmp_path / "figures.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as caught:
        guard.main([option, str(file)])
    assert caught.value.code == 2
    assert str(file) in capsys.readouterr().err


def test_what_was_committed_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has every figure, and a plan of every hot statement."""
    code, result = judged(tmp_path, COMMITTED, capsys)
    assert (code, result["guard"]) == (0, guard.SAME)
    assert result["plans_compared"] == len(plans.hot()) == len(COMMITTED["plans"])
    assert {each["verdict"] for each in result["figures"].values()} == {guard.SAME}


@pytest.mark.parametrize("name", COSTS)
def test_a_fifth_more_is_a_regression(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of any cost, and it is named with its change."""
    code, result = judged(tmp_path, changed(**{name: 1.2}), capsys)
    assert (code, result["guard"]) == (REGRESSED, guard.REGRESSED)
    assert [each for each, verdict in result["figures"].items() if verdict["verdict"] == guard.REGRESSED] == [name]
    assert result["figures"][name]["change"] == pytest.approx(0.2)


def test_claims_that_touch_an_index_are_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """This one falls as it gets worse."""
    assert judged(tmp_path, changed(claim_hot_ratio=0.9), capsys)[0] == REGRESSED


def test_noise_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tenth more or less of everything changes nothing."""
    for factor in (0.9, 1.1):
        code, result = judged(tmp_path, changed(**dict.fromkeys(COSTS, factor)), capsys)
        assert (code, result["guard"]) == (0, guard.SAME)


def test_a_gain_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It passes, and asks for new figures, so that it cannot be lost again unseen."""
    code, result = judged(tmp_path, changed(worker_cpu=0.7), capsys)
    assert (code, result["guard"]) == (0, guard.BETTER)
    file = tmp_path / "measured.json"
    assert guard.main(["--measured", str(file)]) == 0
    assert "--write" in capsys.readouterr().out


def test_another_plan_is_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table names the statement, and shows both plans."""
    document = changed()
    document["plans"]["claim"] = ["Seq Scan of tasks"]
    code, result = judged(tmp_path, document, capsys)
    assert (code, list(result["plans_changed"])) == (REGRESSED, ["claim"])
    assert guard.main(["--measured", str(tmp_path / "measured.json")]) == REGRESSED
    shown = capsys.readouterr().out
    assert "+Seq Scan of tasks" in shown
    assert "tasks_claim_order" in shown


def test_plans_of_another_major_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its planner may see things otherwise; that is said and not hidden."""
    document = changed()
    document["plans"]["claim"] = ["Seq Scan of tasks"]
    document["settings"]["server_version"] = "15.9"
    code, result = judged(tmp_path, document, capsys)
    assert (code, result["plans_compared"]) == (0, 0)


def test_one_disturbed_round_counts_for_nothing() -> None:
    """The best of each counts, of cost and of unit by themselves."""
    calm = COMMITTED["rounds"][0]
    busy = {**calm, "worker_cpu_us_per_task": calm["worker_cpu_us_per_task"] * 3, "wal_bytes_per_task": 2_000.0}
    assert guard.figures([busy, calm]) == guard.figures([calm])
    # A calibration that was disturbed would make a cost look small.
    hidden = {**calm, "python_us_per_unit": calm["python_us_per_unit"] * 3}
    assert guard.figures([hidden, calm]) == guard.figures([calm])


@LONG
@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_it_measures(tmp_path: Path) -> None:
    """A short run writes a document that it then accepts, on a real server."""
    file = tmp_path / "guard.json"
    argv = [
        sys.executable,
        "-m",
        "bench",
        "guard",
        "--write",
        "--tasks",
        "2000",
        "--rounds",
        "1",
        "--against",
        str(file),
    ]
    done = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(file.read_text(encoding="utf-8"))
    assert set(measured["figures"]) == {figure.name for figure in guard.FIGURES}
    assert measured["figures"]["wal_bytes_per_task"] > measured["figures"]["wal_bytes_per_task_not_kept"] > 0
    assert measured["plans"].keys() == plans.hot().keys()
    assert guard.main(["--json", "--against", str(file), "--measured", str(file)]) == 0
