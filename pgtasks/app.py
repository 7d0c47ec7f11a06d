"""The app: where handlers are registered, and what programs enqueue through."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from pgtasks import schedules
from pgtasks.client import AnyConnection, Client, EnqueueOptions, Options
from pgtasks.context import Context
from pgtasks.errors import ConfigError, EnqueueError, PayloadError, seconds
from pgtasks.firing import Missed, Overlap
from pgtasks.handlers import Handler, Handlers, Where, handler, name_of
from pgtasks.model import Enqueued, EnqueuedMany, NewTask, OnConflict, ScheduleDefinition
from pgtasks.outcome import Outcome
from pgtasks.retry import Retry
from pgtasks.settings import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_DEFAULT,
    TIMEOUT_S_DEFAULT,
    Pooler,
    check_integer,
    check_name,
)

P = ParamSpec("P")
R = TypeVar("R")
BeforeHook = Callable[[Context], None]
AfterHook = Callable[[Context, Outcome], None]
Timeout = float | timedelta | None


class _Unset:
    """Stands for "not given" where None means "no timeout"."""


UNSET = _Unset()


class Task(Generic[P, R]):
    """A registered handler. Calling it runs the function; ``enqueue`` makes a worker run it."""

    def __init__(self, handler: Handler, client: Client, options: Options | None = None) -> None:
        self.handler = handler
        self._client = client
        self._options = options or Options()
        self.__doc__ = handler.function.__doc__

    @property
    def name(self) -> str:
        """The task name that rows in the database carry."""
        return self.handler.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, as if it had no decorator.

        A Context parameter is filled in: task 0, its first and last attempt.
        """
        function, context_parameter = self.handler.function, self.handler.context_parameter
        if context_parameter is None:
            return function(*args, **kwargs)  # type: ignore[no-any-return]  # the registry forgets R
        payload = self.handler.payload_of(args, kwargs)
        payload[context_parameter] = Context.detached(self.name)
        return function(**payload)  # type: ignore[no-any-return]  # the registry forgets R

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Make a task for ``app.enqueue_many``; raises ArgumentsError, PayloadError or EnqueueError.

        ``connection`` and ``on_conflict`` concern the whole bulk and are options of that call.
        """
        if self._options.connection is not None or self._options.on_conflict != "ignore":
            raise EnqueueError(
                "prepare() takes no connection or on_conflict: give them to enqueue_many(tasks, connection=…, "
                "on_conflict=…), for all its tasks"
            )
        return self._new(args, kwargs)

    def _new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewTask:
        payload = self.handler.payload_of(args, kwargs)
        return self._options.task(self.name, payload, queue=self.handler.queue, priority=self.handler.priority)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Add a task that calls the function with these arguments.

        Raises ArgumentsError, PayloadError, UniqueConflict or another EnqueueError; nothing was
        inserted then. Raises DatabaseError when the database could not be asked.
        """
        return self._client.enqueue(self._new(args, kwargs), self._options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Do what ``enqueue`` does, without blocking the event loop."""
        return await self._client.aenqueue(self._new(args, kwargs), self._options)

    def using(self, **options: Unpack[EnqueueOptions]) -> Task[P, R]:
        """Give this task with options for its next enqueues; raises EnqueueError for a bad one.

        ``queue``, ``priority`` (higher runs first), ``delay`` and ``timeout`` (seconds or
        timedeltas), ``run_at`` (a datetime with a time zone), ``unique_key`` with
        ``on_conflict`` ("ignore", "raise" or "replace"), ``max_attempts``, ``headers``; None
        leaves an option as it was. With ``connection`` the task is inserted through the
        caller's psycopg connection: inside a transaction it exists exactly if that commits.
        """
        return Task(self.handler, self._client, self._options.changed(**options))

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"


class App:
    """A set of handlers and the database their tasks live in.

    ``dsn`` None means PGTASKS_DSN, read when first needed. ``timeout`` (seconds or timedelta,
    None for none) and ``retry`` are the defaults of its tasks. ``deployment`` names whom its cron
    schedules belong to, None for what the worker's command line calls it, ``MODULE:APP``.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        timeout: Timeout = TIMEOUT_S_DEFAULT,
        retry: Retry | None = None,
        pooler: Pooler | None = None,
        deployment: str | None = None,
    ) -> None:
        self.handlers = Handlers()
        self.schedules: dict[str, ScheduleDefinition] = {}
        self.deployment = None if deployment is None else check_name(deployment, "deployment")
        self.before_hooks: list[BeforeHook] = []
        self.after_hooks: list[AfterHook] = []
        self._timeout_s = _timeout_s(timeout)
        self._retry = retry or Retry()
        self._client = Client(dsn, pooler)

    @property
    def dsn(self) -> str:
        """The connection string; raises ConfigError when there is none."""
        return self._client.dsn()

    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = QUEUE_DEFAULT,
        priority: int = 0,
        retry: Retry | None = None,
        max_attempts: int | None = None,
        timeout: Timeout | _Unset = UNSET,
        executor: Where = "auto",
        keep_result: bool = True,
    ) -> _Decorator: ...
    def task(  # noqa: PLR0913 - one for each option of a task
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = QUEUE_DEFAULT,
        priority: int = 0,
        retry: Retry | None = None,
        max_attempts: int | None = None,
        timeout: Timeout | _Unset = UNSET,
        executor: Where = "auto",
        keep_result: bool = True,
    ) -> Any:  # what the overloads say
        """Register a function as the handler of a task name (its own name, unless given).

        ``max_attempts`` is short for ``retry=Retry(max_attempts=…)``. With ``executor="process"``
        it runs in a child process, which can be killed. With ``keep_result=False`` a task that
        completed leaves no row in history. Raises ConfigError.
        """
        if isinstance(function, str):
            raise ConfigError(f"@app.task takes options by name: @app.task(name={function!r})")
        policy = retry or self._retry
        if max_attempts is not None:
            if retry is not None:
                raise ConfigError("give max_attempts or retry=Retry(max_attempts=…), not both")
            policy = replace(policy, max_attempts=max_attempts)
        check_integer("priority", priority, PRIORITY_MIN, PRIORITY_MAX)
        decorator = _Decorator(
            self,
            name=name,
            queue=check_name(queue, "queue"),
            priority=priority,
            retry=policy,
            timeout_s=self._timeout_s if isinstance(timeout, _Unset) else _timeout_s(timeout),
            executor=executor,
            keep_result=keep_result,
        )
        return decorator if function is None else decorator(function)

    def register(self, one: Handler) -> Task[..., Any]:
        """Add a handler that was described by hand; raises ConfigError when its name is taken."""
        self.handlers.add(one)
        return Task(one, self._client)

    def enqueue(self, name: str, payload: dict[str, Any] | None = None, **options: Unpack[EnqueueOptions]) -> Enqueued:
        """Add a task by name, for handlers that live in another program; options as in ``Task.using``.

        The queue and priority that are not given are those its workers told the database. If
        this app has the handler after all, arguments that do not fit it raise ArgumentsError.
        """
        task, chosen = _named(self.handlers, name, payload, options)
        return self._client.enqueue(task, chosen)

    async def aenqueue(
        self, name: str, payload: dict[str, Any] | None = None, **options: Unpack[EnqueueOptions]
    ) -> Enqueued:
        """Do what ``enqueue`` does, without blocking the event loop."""
        task, chosen = _named(self.handlers, name, payload, options)
        return await self._client.aenqueue(task, chosen)

    def enqueue_many(
        self,
        tasks: Iterable[NewTask],
        *,
        on_conflict: OnConflict = "ignore",
        connection: AnyConnection | None = None,
    ) -> EnqueuedMany:
        """Add any number of tasks, all or none, in constant memory: ``task.prepare(…)`` makes them.

        With ``on_conflict="raise"`` a taken unique_key raises UniqueConflict, and none is added;
        through a caller's ``connection`` the transaction goes on as if nothing had been tried.
        Raises EnqueueError, naming the position of a bad one, or DatabaseError.
        """
        return self._client.enqueue_many(tasks, Options(on_conflict=on_conflict, connection=connection))

    async def aenqueue_many(
        self,
        tasks: Iterable[NewTask],
        *,
        on_conflict: OnConflict = "ignore",
        connection: AnyConnection | None = None,
    ) -> EnqueuedMany:
        """Do what ``enqueue_many`` does, without blocking the event loop."""
        return await self._client.aenqueue_many(tasks, Options(on_conflict=on_conflict, connection=connection))

    def before_task(self, hook: BeforeHook) -> BeforeHook:
        """Register a function that runs before each handler, where the handler runs.

        What it raises fails the task.
        """
        self.before_hooks.append(_plain(hook))
        return hook

    def after_task(self, hook: AfterHook) -> AfterHook:
        """Register a function that runs after each handler with what becomes of the task.

        What it raises is logged and changes nothing.
        """
        self.after_hooks.append(_plain(hook))
        return hook

    def cron(  # noqa: PLR0913 - these are the fields of a schedule
        self,
        expression: str,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        payload: dict[str, Any] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        seconds: bool = False,
        missed: Missed = "latest",
        missed_max: int = 100,
        overlap: Overlap = "allow",
        jitter: float | str | timedelta = 0.0,
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Enqueue a task by a cron schedule: put it above ``@app.task``; several may stand there.

        The schedule's name is the task's, unless given. docs/cron.md has the grammar and the
        policies. Raises ScheduleError for the expression and the time zone, PayloadError or
        ArgumentsError for a payload that does not fit the task, ConfigError for the rest.
        """
        if not isinstance(expression, str):
            raise ConfigError('@app.cron takes an expression: @app.cron("0 9 * * *")')

        def decorate(task: Task[P, R]) -> Task[P, R]:
            if not isinstance(task, Task):
                raise ConfigError("@app.cron(…) stands above @app.task, not below it")
            if self.handlers.get(task.name) is not task.handler:
                raise ConfigError(f"task {task.name!r} belongs to another app; its schedules stand there")
            one = schedules.definition(
                task.name if name is None else name,
                expression,
                task.name,
                timezone=timezone,
                seconds_first=seconds,
                payload=payload,
                queue=queue,
                priority=priority,
                missed=missed,
                missed_max=missed_max,
                overlap=overlap,
                jitter=jitter,
            )
            task.handler.arguments_of(dict(one.payload), lambda: Context.detached(task.name))
            if one.name in self.schedules:
                raise ConfigError(f"schedule {one.name!r} is defined twice; give one of them a name=")
            self.schedules[one.name] = one
            return task

        return decorate

    def close(self) -> None:
        """Close the connections that this process's threads enqueued through."""
        self._client.close()

    async def aclose(self) -> None:
        """Close the connections that the running event loop enqueued through."""
        await self._client.aclose()


class _Decorator:
    """What ``@app.task(…)`` with options gives: it takes the function."""

    def __init__(self, app: App, **settings: Any) -> None:
        self._app, self._settings = app, settings

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Register the function."""
        settings = dict(self._settings)
        given = settings.pop("name")
        name = check_name(name_of(function) if given is None else given, "name")
        return self._app.register(handler(function, name=name, **settings))


def _named(
    handlers: Handlers, name: str, payload: dict[str, Any] | None, options: EnqueueOptions
) -> tuple[NewTask, Options]:
    """Check a task that is enqueued by its name alone; its arguments too, where the handler is at hand."""
    chosen = Options().changed(**options)
    try:
        check_name(name, "name")
    except ConfigError as error:
        raise EnqueueError(str(error)) from None
    if payload is not None and not isinstance(payload, dict):
        raise PayloadError(f"payload must be a dict of the handler's arguments, got {type(payload).__name__}")
    arguments = {} if payload is None else payload
    if name in handlers:
        handlers[name].arguments_of(dict(arguments), lambda: Context.detached(name))
    return chosen.task(name, arguments), chosen


H = TypeVar("H", bound=Callable[..., None])


def _plain(hook: H) -> H:
    if inspect.iscoroutinefunction(hook):
        raise ConfigError(f"hook {hook.__qualname__} is an async def; hooks are plain functions that return soon")
    return hook


def _timeout_s(timeout: Timeout) -> float | None:
    value = None if timeout is None else seconds(timeout, field="timeout")
    if value == 0:
        raise ConfigError("timeout must be above 0 seconds; None means no timeout")
    return value
