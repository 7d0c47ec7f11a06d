"""What the log says of failing tasks: each error's traceback once, not once per attempt."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest

from pgtasks import App, events
from pgtasks.engine import reports
from pgtasks.engine.attempt import Attempt, describe
from pgtasks.errors import ProcessDied, RetryLater
from pgtasks.model import Claimed
from pgtasks.outcome import Dead, RetryIn

Said = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def said() -> Iterator[Said]:
    """The events of the test."""
    heard: Said = []
    end = events.subscribe(lambda event, fields: heard.append((event, dict(fields))))
    yield heard
    end()


def attempt(name: str = "work") -> Attempt:
    """Give an attempt of a task with that name."""
    app = App("postgresql://nowhere")

    @app.task(name=name)
    def work() -> None:
        raise NotImplementedError

    task = Claimed(
        id=7, lease_id=1, name=name, payload="{}", attempt=1, max_attempts=None, timeout_s=None, priority=0,
        run_at=datetime.now(UTC), headers=None,
    )  # fmt: skip
    return Attempt(task, app.handlers[name], "default", 0.0)


def throw(error: BaseException) -> NoReturn:
    """Raise it."""
    raise error


def raised(error: BaseException) -> BaseException:
    """Raise and catch an error, so that it has a traceback."""
    try:
        throw(error)
    except BaseException as caught:  # noqa: BLE001 - of any class
        return caught


def test_the_first_failure_of_each_kind_has_its_traceback(said: Said) -> None:
    """A kind is a task name and an error class."""
    reporter = reports.Reporter()
    kinds = [("a", ValueError), ("a", ValueError), ("a", KeyError), ("b", ValueError), ("b", ValueError)]
    for name, error in kinds:
        reporter.report([(attempt(name), RetryIn(1.0, describe(raised(error("x")))))])
    assert ["traceback" in fields for _, fields in said] == [True, False, True, True, False]
    assert "raise error\nValueError: x" in said[0][1]["traceback"]


def test_a_dead_letter_always_has_it(said: Said) -> None:
    """It needs somebody, and is the last word about its task."""
    reporter, failure = reports.Reporter(), describe(raised(ValueError("x")))
    for outcome in (RetryIn(1.0, failure), Dead("exhausted", failure), Dead("exhausted", failure)):
        reporter.report([(attempt(), outcome)])
    assert ["traceback" in fields for _, fields in said] == [True, True, True]


def test_a_handler_that_asks_for_a_retry_has_none(said: Said) -> None:
    """It knows what it does. When the task dies of that, somebody wants to know where."""
    failure = describe(raised(RetryLater(1, "not yet")))
    for outcome in (RetryIn(1.0, failure), Dead("exhausted", failure)):
        reports.Reporter().report([(attempt(), outcome)])
    assert ["traceback" in fields for _, fields in said] == [False, True]


def test_kinds_are_remembered_up_to_a_limit(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it failures have no traceback, and the worker's memory does not grow."""
    monkeypatch.setattr(reports, "TOLD_MAX", 2)
    reporter = reports.Reporter()
    for name in ("a", "b", "c"):
        reporter.report([(attempt(name), RetryIn(1.0, describe(raised(ValueError("x")))))])
    assert ["traceback" in fields for _, fields in said] == [True, True, False]


def test_an_error_without_words_is_its_class_alone(said: Said) -> None:
    """Not one with a colon behind it."""
    reports.Reporter().report([(attempt(), RetryIn(1.0, describe(raised(MemoryError()))))])
    assert said[0][1]["error"] == "MemoryError"


def test_a_dead_process_has_no_traceback(said: Said) -> None:
    """There are no frames to show, and the message is said already."""
    reports.Reporter().report([(attempt(), Dead("worker_lost", describe(ProcessDied.of(-11))))])
    assert "traceback" not in said[0][1]


def test_a_storm_of_failures_is_listed_in_part_and_counted(said: Said) -> None:
    """A hundred of a kind in a second, the rest as a number when it is over; another kind has its own hundred."""
    now = 50.0
    reporter = reports.Reporter(lambda: now)
    outcome = RetryIn(0.1, describe(raised(ValueError("away"))))
    for _ in range(reports.LINES_PER_S + 30):
        reporter.report([(attempt("many"), outcome)])
    reporter.report([(attempt("few"), outcome)])
    reporter.sum_up()
    assert [event for event, _ in said].count("task failed") == reports.LINES_PER_S + 1
    assert "failures not listed" not in dict(said)
    now = 51.0
    reporter.sum_up()
    assert [fields for event, fields in said if event == "failures not listed"] == [
        {"task": "many", "error": "ValueError", "count": 30, "advice": "pgtasks.attempts has each"}
    ]
    said.clear()
    reporter.report([(attempt("many"), outcome)])
    reporter.sum_up(at_once=True)
    assert [event for event, _ in said] == ["task failed"]
