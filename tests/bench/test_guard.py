"""`./dev bench guard` sees what costs more than it did, and is not alarmed by noise."""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench import database, guard, plans
from bench.database import Bench
from tests.database import ROOT
from tests.long import LONG
from tests.workers import environment

COMMITTED: dict[str, Any] = json.loads(guard.COMMITTED.read_text(encoding="utf-8"))
COSTS = [figure.name for figure in guard.FIGURES if not figure.least]
REGRESSED, UNREAD = 1, 2


def measured_round() -> dict[str, Any]:
    """Give a round as it is measured: a long run, a short one, and the units."""
    return {
        "worker_cpu_us_per_task": 6.0,
        "worker_cpu_us_per_task_whole": 9.0,
        "worker_cpu_us_per_task_idle": 3.0,
        "server_cpu_us_per_task": 8.0,
        "server_cpu_us_per_task_whole": 10.0,
        "server_cpu_us_per_task_idle": 2.0,
        "commits_per_task": 0.004,
        "commits_per_task_whole": 0.005,
        "commits_per_task_idle": 0.001,
        "python_us_per_unit": 3.0,
        "sql_us_per_unit": 2.0,
        "wal_bytes_per_task": 480.0,
        "wal_bytes_per_task_not_kept": 250.0,
        "claim_hot_ratio": 1.0,
    }


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
    calm = measured_round()
    busy = {**calm, "worker_cpu_us_per_task_whole": 30.0, "worker_cpu_us_per_task": 27.0, "wal_bytes_per_task": 2_000.0}
    assert guard.figures([busy, calm]) == guard.figures([calm])
    # A calibration that was disturbed would make a cost look small.
    hidden = {**calm, "python_us_per_unit": calm["python_us_per_unit"] * 3}
    assert guard.figures([hidden, calm]) == guard.figures([calm])


@pytest.mark.parametrize("name", guard.FROM_START)
def test_a_disturbed_start_and_end_hide_no_cost(name: str) -> None:
    """They are taken off, so that more of them is less of the tasks."""
    calm = measured_round()
    idle = 2 * calm[name + guard.IDLE]
    hidden = {**calm, name: calm[name + guard.WHOLE] - idle, name + guard.IDLE: idle}
    assert guard.figures([hidden, calm]) == guard.figures([calm, hidden]) == guard.figures([calm])
    assert guard.figures([hidden]) != guard.figures([calm])


def test_a_start_and_an_end_are_no_cost_of_tasks() -> None:
    """What is left is in units of what the machine can do."""
    figures = guard.figures([measured_round()])
    assert (figures["worker_cpu"], figures["server_cpu"]) == (2.0, 4.0)
    assert figures["commits_per_task"] == 0.004


def test_what_is_to_be_committed_takes_as_many_rounds_as_a_judgement_can(
    monkeypatch: pytest.MonkeyPatch, server: Any
) -> None:
    """The best of four would be beaten by the best of seven, which is no gain."""

    @contextlib.contextmanager
    def started() -> Iterator[Bench]:
        with psycopg.connect(server.dsn_for("postgres"), autocommit=True) as connection:
            yield Bench(server.private, connection)

    monkeypatch.setattr(database, "started", started)
    monkeypatch.setattr(guard, "_plans", lambda _bench: {})
    monkeypatch.setattr(guard, "_round", lambda _bench, _tasks: measured_round())
    options = argparse.Namespace(tasks=10, rounds=2)
    rounds = {
        "written": guard.measure(options, None)["rounds"],
        "good": guard.measure(options, {"figures": guard.figures([measured_round()])})["rounds"],
        "bad": guard.measure(options, {"figures": {"wal_bytes_per_task": 1.0}})["rounds"],
    }
    assert {name: len(each) for name, each in rounds.items()} == {"written": 5, "good": 2, "bad": 5}


@pytest.mark.parametrize(("factor", "code"), [(1.0, UNREAD), (1.3, REGRESSED)])
def test_a_figure_that_could_not_be_read_is_not_passed_over(
    factor: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, and the exit code is another one than that of a regression, which comes first."""
    document = changed(worker_cpu=factor)
    document["figures"]["server_cpu"] = None
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    assert guard.main(["--json", "--measured", str(file)]) == code
    said = capsys.readouterr()
    assert json.loads(said.out)["unread"] == ["server_cpu"]
    assert ("server_cpu: not measured here" in said.err) is (code == UNREAD)


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
