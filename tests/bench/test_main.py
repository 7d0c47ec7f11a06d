"""What is asked for on the command line, and what is left when a run fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from bench import __main__ as command
from bench import database
from bench.report import Key
from bench.rivals import RIVALS
from bench.scenario import Outcome, Plan, Scenario, no_rivals
from bench.scenarios import SCENARIOS
from pgtasks.errors import ConfigError
from tests.database import ROOT
from tests.workers import environment

FAILURES = [
    AssertionError("a task\nis lost"),
    ConfigError("a task is lost"),
    psycopg.OperationalError("a task is lost"),
    OSError("a task is lost"),
]


class Server:
    """All of a running server that a document needs."""

    def settings(self) -> dict[str, str]:
        """Say its version."""
        return {"server_version": "18.1"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no real one, and leave the signals as they are."""

    @contextmanager
    def started() -> Iterator[Any]:
        yield Server()

    monkeypatch.setattr(database, "started", started)
    monkeypatch.setattr(command, "_end_by_signals", lambda: None)


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, *, rounds: int) -> None:
    """Make `drain` a scenario that fails after so many rounds."""

    def measure(_bench: Any, _plan: Plan, outcome: Outcome) -> None:
        outcome.facts["of"] = "its own"
        outcome.rounds.extend({"rate": float(number)} for number in range(1, rounds + 1))
        raise error

    keys = no_rivals(Key("rate", "tasks per second"))
    monkeypatch.setitem(SCENARIOS, "drain", Scenario("drain", "It fails.", keys, Plan(10, 3), measure))


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_the_rounds_before_one_that_fails_are_kept(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a document that says which one failed, and why; the exit code does too."""
    failing(monkeypatch, error, rounds=2)
    assert command.main(["drain", "--json"]) == 1
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["rate"], len(document["rounds"]), document["of"]) == (2, 2, "its own")
    assert document["failed"] == "round 3 of 3 failed: a task is lost"
    assert document["missing"][-1].startswith(document["failed"])
    assert said.err == f"bench: {document['failed']}\n"
    assert command.main(["drain"]) == 1
    assert "missing: round 3 of 3 failed" in capsys.readouterr().out


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_first_round_that_fails_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no document."""
    failing(monkeypatch, error, rounds=0)
    assert command.main(["drain", "--json"]) == 1
    assert capsys.readouterr() == ("", "bench: a task is lost\n")


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if not scenario.plan.seconds])
def test_seconds_are_refused_where_no_time_is_the_limit(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Or the document would name them, as if they had been kept to."""
    assert command.main([name, "--seconds", "5"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"bench: no time is the limit of {name}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "tasks", "seconds"),
    [
        (["soak", "--seconds", "60"], 300_000, 60),
        (["soak", "--tasks", "1000"], 1_000, 1800),
        (["soak", "--seconds", "60", "--tasks", "1000"], 1_000, 60),
        (["soak"], 9_000_000, 1800),
        (["drain", "--seconds", "60"], 1_000_000, 60),
        (["held", "--seconds", "6"], 6_000_000, 6),
        (["latency", "--seconds", "2"], 400, 2),
        (["retries"], SCENARIOS["retries"].plan.tasks, 0),
    ],
    ids=str,
)
def test_fewer_seconds_at_a_steady_rate_are_fewer_tasks(arguments: list[str], tasks: int, seconds: int) -> None:
    """Only where the tasks are spread over the seconds; elsewhere they are a backlog or a limit of their own."""
    options = command.parser().parse_args(arguments)
    plan = command.planned(SCENARIOS[options.scenario], options)
    assert (plan.tasks, plan.seconds) == (tasks, seconds)
    assert all(SCENARIOS[name].plan.seconds for name in command.PACED)


def test_the_field_is_everybody_unless_some_are_named() -> None:
    """Other scenarios measure rivals when they are asked for."""
    for arguments, rivals in (
        (["field"], tuple(RIVALS)),
        (["field", "--rivals", "graphile"], ("graphile",)),
        (["drain"], ()),
    ):
        options = command.parser().parse_args(arguments)
        assert command.planned(SCENARIOS[options.scenario], options).rivals == rivals


@pytest.mark.parametrize(
    "arguments", [["drain", "--tasks", "0"], ["guard", "--rounds", "-1"], ["guard", "--tasks", "x"]]
)
def test_a_number_that_makes_no_sense_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As a usage error."""
    run = command.guarded if arguments[0] == "guard" else command.main
    with pytest.raises(SystemExit) as caught:
        run(arguments[arguments[0] == "guard" :])
    assert caught.value.code == 2
    assert f"{arguments[-1]!r} is no whole number above 0" in capsys.readouterr().err


def test_it_does_not_run_without_its_checks() -> None:
    """Each run's validity is an assertion."""
    argv = [sys.executable, "-O", "-m", "bench", "drain", "--tasks", "10", "--rounds", "1"]
    done = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("bench: Python was told to leave assertions out")
    assert done.stderr.count("\n") == 1
