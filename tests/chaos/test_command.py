"""`./dev chaos` says what there is to choose from, and its exit code says how a run went."""

from pathlib import Path

import pytest

from tests.chaos import checker, report, run, stage
from tests.chaos.history import History
from tests.chaos.nemesis import DEFAULT_FAULTS, FAULTS
from tests.chaos.planted import PLANTS
from tests.chaos.test_checker import good


def plan_of(*arguments: str) -> stage.Plan:
    """Return the plan that a command line asks for."""
    return run.plan_of(run.parser().parse_args(arguments))


def test_it_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Every fault, planted bug and invariant, by the name that is typed or reported."""
    assert run.main(["--list"]) == run.EXIT_OK
    listed = {word for line in capsys.readouterr().out.splitlines() for word in line.replace("*", " ").split()[:1]}
    assert listed >= {*FAULTS, *PLANTS, *checker.INVARIANTS}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--faults", "kill_worker,nonsense"], "no fault 'nonsense'"),
        (["--faults", "failover,restart_pgbouncer"], "would not follow a failover"),
        (["--workers", "0"], "--workers must be at least 1"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started."""
    assert run.main(arguments) == run.EXIT_USAGE
    assert message in capsys.readouterr().err


def test_faults_are_those_of_the_command_line() -> None:
    """The default set without a word; those that show a planted bug, unless others are named."""
    assert tuple(plan_of().faults) == DEFAULT_FAULTS
    assert plan_of("--faults", "none").faults == []
    assert plan_of("--faults", "kill_worker, failover").faults == ["kill_worker", "failover"]
    assert plan_of("--plant", "unfenced_complete").faults == PLANTS["unfenced_complete"].faults
    assert plan_of("--plant", "unfenced_complete", "--faults", "none").faults == []
    assert "failover" in plan_of("--faults", "all").faults


def finish(history: History, failures: list[str], folder: Path) -> int:
    """Report about a run and return the exit code."""
    violations = checker.check(history)
    document = {"seed": 1, "duration_s": 2.0, "command": "again", **report.figures(history, violations, {})}
    return run.finish(document, violations, stage.Result(history, failures=failures), folder, None)


def test_a_good_run_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder is removed, and the table says how to repeat it."""
    folder = tmp_path / "run"
    folder.mkdir()
    assert finish(good(), [], folder) == run.EXIT_OK
    assert not folder.exists()
    told = capsys.readouterr()
    assert "Again: again" in told.out
    assert "VIOLATED" not in told.out + told.err


def test_a_violation_is_named_and_its_evidence_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code says that something is wrong, the last lines what, and where to look."""
    history = good()
    del history.rows[0]
    assert finish(history, [], tmp_path) == run.EXIT_VIOLATED
    told = capsys.readouterr()
    assert "a committed task is nowhere" in told.out
    assert "VIOLATED: I1" in told.err
    assert str(tmp_path) in told.err
    assert (tmp_path / "history.json").exists()


def test_a_fault_that_could_not_be_undone_spoils_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was not done to the system cannot have been survived."""
    assert finish(good(), ["disk_full: no"], tmp_path) == run.EXIT_VIOLATED
    assert "disk_full: no" in capsys.readouterr().err
