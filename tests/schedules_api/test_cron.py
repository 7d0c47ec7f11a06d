"""`@app.cron`: what it makes of its arguments, and what it refuses, before any database sees it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pgtasks import App, Context, ScheduleError
from pgtasks.app import Task
from pgtasks.errors import ConfigError, EnqueueError, PgtasksError
from pgtasks.model import ScheduleDefinition


@pytest.fixture
def app() -> App:
    """Give an app without a database."""
    return App("postgresql://nowhere.invalid/none")


def report_of(app: App) -> Task[..., Any]:
    """Register a task that takes one argument and has one with a default."""

    @app.task(queue="reports", priority=3)
    def report(day: str, copies: int = 1) -> None:
        """Do nothing."""

    return report


def test_a_schedule_is_named_like_its_task(app: App) -> None:
    """What is not given has the defaults of the table."""

    @app.cron("0 9 * * *")
    @app.task
    def report() -> str:
        """Say that it ran."""
        return "ran"

    assert app.schedules == {"report": ScheduleDefinition("report", "0 9 * * *", "UTC", "report", {})}
    assert report() == "ran"


def test_every_argument_has_its_field(app: App) -> None:
    """The task stays what it was, so that decorators can be stacked."""
    task = report_of(app)
    decorate = app.cron(
        "0 0 9 * * mon-fri",
        timezone="Europe/Paris",
        name="mornings",
        payload={"day": "today"},
        queue="mails",
        priority=-5,
        seconds=True,
        missed="all",
        missed_max=7,
        overlap="skip",
        jitter="1m30s",
    )
    assert decorate(task) is task
    assert app.schedules["mornings"] == ScheduleDefinition(
        name="mornings",
        expression="0 0 9 * * mon-fri",
        timezone="Europe/Paris",
        task="report",
        payload={"day": "today"},
        queue="mails",
        priority=-5,
        seconds=True,
        missed="all",
        missed_max=7,
        overlap="skip",
        jitter_s=90.0,
    )


def test_several_schedules_on_one_task(app: App) -> None:
    """Each has a name of its own."""

    @app.cron("0 9 * * *", name="morning", payload={"copies": 2})
    @app.cron("0 18 * * *")
    @app.task
    async def report(context: Context, copies: int = 1) -> None:
        """Do nothing."""
        del context, copies

    assert list(app.schedules) == ["report", "morning"]
    assert {one.task for one in app.schedules.values()} == {"report"}


def test_two_of_one_name_are_refused(app: App) -> None:
    """Also on different tasks: one of them would never fire."""
    task = report_of(app)
    app.cron("@hourly", payload={"day": "a"})(task)
    with pytest.raises(ConfigError, match="'report' is defined twice"):
        app.cron("@daily", payload={"day": "b"})(task)
    assert app.schedules["report"].expression == "@hourly"


@pytest.mark.parametrize(
    ("span", "seconds"), [(0, 0.0), (1.5, 1.5), ("30s", 30.0), ("1h30m", 5400.0), (timedelta(minutes=2), 120.0)]
)
def test_jitter_can_be_written_in_several_ways(app: App, span: float | str | timedelta, seconds: float) -> None:
    """A number is seconds."""
    app.cron("@hourly", payload={"day": "a"}, jitter=span)(report_of(app))
    assert app.schedules["report"].jitter_s == seconds


BAD: list[tuple[dict[str, Any], type[PgtasksError], str]] = [
    ({"expression": "0 0 30 2 *"}, ScheduleError, "day-of-month: .*never fires"),
    ({"expression": "0 0 4 * * *"}, ScheduleError, "expression: 6 fields"),
    ({"expression": ""}, ScheduleError, "expression: "),
    ({"timezone": "Europe/Pariss"}, ScheduleError, "timezone: .*Europe/Paris"),
    ({"timezone": None}, ScheduleError, "timezone: "),
    ({"seconds": "yes"}, ScheduleError, "seconds: "),
    ({"name": ""}, ConfigError, "schedule name must have 1 to 200"),
    ({"name": "x" * 201}, ConfigError, "schedule name must have 1 to 200"),
    ({"name": "a\nb"}, ConfigError, "schedule name must not hold control"),
    ({"name": 7}, ConfigError, "schedule name must be text"),
    ({"payload": [1]}, EnqueueError, "payload must be a dict"),
    ({"payload": {}}, EnqueueError, "missing day"),
    ({"payload": {"day": "a", "dya": 1}}, EnqueueError, "unknown dya"),
    ({"payload": {"day": float("nan")}}, EnqueueError, r"payload\.day"),
    ({"payload": {"day": "\x00"}}, EnqueueError, r"payload\.day"),
    ({"queue": ""}, ConfigError, "queue must have 1 to 200"),
    ({"queue": 7}, ConfigError, "queue must be text"),
    ({"priority": 40_000}, ConfigError, "priority must be a whole number between"),
    ({"priority": 1.5}, ConfigError, "priority must be a whole number between"),
    ({"missed": "never"}, ConfigError, "missed must be skip or latest or all"),
    ({"missed": ["skip"]}, ConfigError, "missed must be skip or latest or all"),
    ({"missed_max": 0}, ConfigError, "missed_max must be a whole number between 1 and 1000"),
    ({"missed_max": 1001}, ConfigError, "missed_max must be a whole number between 1 and 1000"),
    ({"missed_max": True}, ConfigError, "missed_max must be a whole number between 1 and 1000"),
    ({"missed_max": None}, ConfigError, "missed_max must be a whole number between 1 and 1000"),
    ({"overlap": "forbid"}, ConfigError, "overlap must be allow or skip"),
    ({"jitter": "soon"}, ConfigError, "jitter 'soon' is not a span of time"),
    ({"jitter": "30"}, ConfigError, "jitter '30' is not a span of time"),
    ({"jitter": -1}, ConfigError, "jitter must not be negative"),
    ({"jitter": "25h"}, ConfigError, "jitter must be at most 86400"),
    ({"jitter": None}, ConfigError, "jitter must be seconds"),
]


@pytest.mark.parametrize(("change", "kind", "message"), BAD, ids=[str(change)[:60] for change, *_ in BAD])
def test_bad_input_of_every_field(app: App, change: dict[str, Any], kind: type[PgtasksError], message: str) -> None:
    """The message names the field; nothing is defined."""
    given = {"expression": "@hourly", "payload": {"day": "a"}, **change}
    with pytest.raises(kind, match=message):
        app.cron(given.pop("expression"), **given)(report_of(app))
    assert app.schedules == {}


def test_without_parentheses_it_says_what_to_write(app: App) -> None:
    """Python hands it the task then, and would go on with something that is none."""
    task: Any = report_of(app)
    with pytest.raises(ConfigError, match=r'@app.cron\("0 9 \* \* \*"\)'):
        app.cron(task)


def test_below_the_task_it_says_where_it_stands(app: App) -> None:
    """It gets a plain function then."""
    function: Any = len
    with pytest.raises(ConfigError, match=r"stands above @app\.task"):
        app.cron("@hourly")(function)


def test_a_task_of_another_app_is_refused(app: App) -> None:
    """This app's workers would not know it."""
    other = report_of(App("postgresql://nowhere.invalid/none"))
    with pytest.raises(ConfigError, match="another app"):
        app.cron("@hourly", payload={"day": "a"})(other)


def test_what_the_caller_changes_later_changes_nothing(app: App) -> None:
    """The payload was checked as it was."""
    payload: dict[str, Any] = {"day": ["a"]}
    app.cron("@hourly", payload=payload)(report_of(app))
    payload["day"].append("b")
    payload["more"] = 1
    assert app.schedules["report"].payload == {"day": ["a"]}


def test_a_context_is_no_part_of_the_payload(app: App) -> None:
    """It is filled in for the check, and not written to the table."""

    @app.cron("@hourly")
    @app.task
    def report(context: Context) -> None:
        """Do nothing."""
        del context

    assert app.schedules["report"].payload == {}


def test_the_types_of_the_task_go_through(app: App) -> None:
    """What is decorated can be called as before."""

    @app.cron("@hourly", payload={"day": "a"})
    @app.task
    def report(day: str) -> int:
        """Count."""
        return len(day)

    typed: Callable[[str], int] = report
    assert typed("abc") == 3
