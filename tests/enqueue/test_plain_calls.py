"""A plain call of a task runs the function and never enqueues; registration refuses what could not run."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pgtasks import App, ConfigError, Context, Retry
from tests.enqueue.conftest import Live


def test_a_plain_call_runs_the_function(app: App, live: Live) -> None:
    """With its arguments, defaults and keywords."""

    @app.task
    def add(a: int, b: int = 2) -> int:
        """Give the sum."""
        return a + b

    @app.task(name="open")
    def open_ended(context: Context, a: int, **rest: int) -> tuple[int, int, dict[str, int]]:
        return context.task_id, a, rest

    # Where a Context does not come first, or after it a **, a type checker sees less than Python.
    call: Any = open_ended
    assert add(1) == 3
    assert add(1, b=5) == 6
    assert call(1, x=2, rest=3) == (0, 1, {"x": 2, "rest": 3})
    assert add.__doc__ == "Give the sum."
    assert repr(open_ended) == "<Task 'open'>"
    assert live.count() == 0


async def test_a_plain_call_of_an_async_task_gives_its_coroutine(app: App, live: Live) -> None:
    """Awaited, it gives the result; the context is one of a first and last attempt."""

    @app.task(max_attempts=4)
    async def work(a: int, context: Context) -> tuple[int, int, bool, bool]:
        await asyncio.sleep(0)
        return a, context.attempt, context.is_last_attempt, context.cancelled

    call: Any = work  # Where the context comes second a type checker asks for it.
    assert await call(5) == (5, 1, True, False)
    assert live.count() == 0


class Callable:
    """An object that is called like an async function."""

    async def __call__(self, a: int) -> int:
        """Give the argument."""
        return a


def test_partials_and_callable_objects_are_handlers(app: App) -> None:
    """They have no name of their own; an async __call__ makes an async handler."""

    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(ConfigError, match="no name of its own"):
        app.task(functools.partial(add, b=1))
    assert app.task(name="partial")(functools.partial(add, b=1))(2) == 3
    app.task(name="object")(Callable())
    assert app.handlers["object"].kind == "async"
    assert app.handlers["partial"].kind == "thread"


def test_one_decorator_may_be_used_twice(app: App) -> None:
    """Its settings stay."""
    decorate = app.task(queue="q")
    for number in range(2):

        def work() -> None:
            raise NotImplementedError

        work.__name__ = f"work{number}"
        decorate(work)
    assert [handler.queue for handler in app.handlers.values()] == ["q", "q"]


def generator() -> Iterator[int]:
    """Never runs as a handler."""
    yield 1


async def agenerator() -> AsyncIterator[int]:
    """Never runs as a handler."""
    yield 1


def positional(a: int, /) -> None:
    """Has a parameter without a name."""


def star(*args: int) -> None:
    """Has any number of parameters without names."""


def two_contexts(one: Context, two: Context) -> None:
    """Asks twice."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (generator, "generator function"),
        (agenerator, "generator function"),
        (positional, "cannot be passed by name"),
        (star, "cannot be passed by name"),
        (two_contexts, "several Context parameters: one, two"),
        (Callable, "a handler is a def or an async def"),
        ("name", r"@app\.task\(name='name'\)"),
    ],
)
def test_what_could_not_run_is_refused_when_it_is_registered(app: App, function: Any, message: str) -> None:
    """With the reason."""
    with pytest.raises(ConfigError, match=message):
        app.task(function)
    assert not app.handlers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"queue": ""}, "queue must have 1 to 200"),
        ({"priority": 40_000}, "priority must be a whole number"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"timeout": -1}, "timeout must not be negative"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 2, "retry": Retry()}, "not both"),
        ({"retry": None, "max_attempts": 1.5}, "whole number"),
    ],
)
def test_a_bad_setting_of_a_task_is_named(app: App, settings: dict[str, Any], message: str) -> None:
    """As a ConfigError, when the module is imported."""
    with pytest.raises(ConfigError, match=message):
        app.task(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"base": -1},
        {"base": float("inf")},
        {"base": "1"},
        {"factor": 0.5},
        {"cap": float("nan")},
        {"max_attempts": True},
        {"on": (ValueError, "x")},
        {"never_on": 5},
    ],
)
def test_a_bad_retry_policy_is_named(settings: dict[str, Any]) -> None:
    """Each field by itself."""
    with pytest.raises(ConfigError, match=rf"Retry\({next(iter(settings))}="):
        Retry(**settings)


def test_a_name_is_registered_once(app: App) -> None:
    """The message says where both are, and what to do."""
    app.task(name="work")(positional_free)
    with pytest.raises(ConfigError, match=r"registered twice, by .*positional_free and .*with_default"):
        app.task(name="work")(with_default)


def positional_free() -> None:
    """Do nothing."""


def with_default(a: int = 1) -> None:
    """Do nothing."""


def test_async_hooks_are_refused(app: App) -> None:
    """They would never run."""

    async def hook(*_: object) -> None:
        raise NotImplementedError

    registers: list[Any] = [app.before_task, app.after_task]
    for register in registers:
        with pytest.raises(ConfigError, match="hooks are plain functions"):
            register(hook)
