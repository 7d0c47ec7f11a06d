"""The app: where handlers are registered, and what programs enqueue through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from pgtasks.client import AnyConnection, Client, Options
from pgtasks.context import Context
from pgtasks.errors import ConfigError, seconds
from pgtasks.handlers import Handler, Handlers, handler
from pgtasks.model import Enqueued, EnqueuedMany, NewTask, OnConflict
from pgtasks.outcome import Outcome
from pgtasks.retry import Retry
from pgtasks.settings import QUEUE_DEFAULT, TIMEOUT_S_DEFAULT, check_name

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
        """Run the function here and now, as if it had no decorator."""
        given: dict[str, Any] = dict(kwargs)
        if self.handler.context_parameter is not None:
            bound = self.handler.signature.bind(*args, **kwargs)
            given = {**bound.arguments, self.handler.context_parameter: Context.detached(self.name)}
            return self.handler.function(**given)  # type: ignore[no-any-return]  # the registry forgets R
        return self.handler.function(*args, **kwargs)  # type: ignore[no-any-return]  # the registry forgets R

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Make a task for ``app.enqueue_many``; raises ArgumentsError, PayloadError or EnqueueError."""
        payload = self.handler.payload_of(args, kwargs)
        return self._options.task(self.name, payload, queue=self.handler.queue, priority=self.handler.priority)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Add a task that calls the function with these arguments.

        Raises ArgumentsError, PayloadError, UniqueConflict or another EnqueueError; nothing was
        inserted then. Raises DatabaseError when the database could not be asked.
        """
        return self._client.enqueue(self.prepare(*args, **kwargs), self._options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Do what ``enqueue`` does, without blocking the event loop."""
        return await self._client.aenqueue(self.prepare(*args, **kwargs), self._options)

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | timedelta | None = None,
        run_at: Any = None,
        unique_key: str | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        headers: dict[str, Any] | None = None,
        on_conflict: OnConflict | None = None,
        connection: AnyConnection | None = None,
    ) -> Task[P, R]:
        """Give this task with options for its next enqueues; raises EnqueueError for a bad one.

        ``delay`` and ``timeout`` are seconds or timedeltas, ``run_at`` a datetime with a time
        zone. With ``connection`` the task is inserted through the caller's psycopg connection:
        inside a transaction it exists exactly if that transaction commits.
        """
        options = self._options.changed(
            queue=queue,
            priority=priority,
            delay=delay,
            run_at=run_at,
            unique_key=unique_key,
            max_attempts=max_attempts,
            timeout=timeout,
            headers=headers,
            on_conflict=on_conflict,
            connection=connection,
        )
        return Task(self.handler, self._client, options)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"


class App:
    """A set of handlers and the database their tasks live in.

    ``dsn`` None means PGTASKS_DSN, read when first needed. ``timeout`` (seconds or timedelta,
    None for none) and ``retry`` are the defaults of its tasks.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        timeout: Timeout = TIMEOUT_S_DEFAULT,
        retry: Retry | None = None,
        pooler: str = "none",
    ) -> None:
        self.handlers = Handlers()
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
        *,
        name: str | None = None,
        queue: str = QUEUE_DEFAULT,
        priority: int = 0,
        retry: Retry | None = None,
        max_attempts: int | None = None,
        timeout: Timeout | _Unset = UNSET,
    ) -> _Decorator: ...
    def task(
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
    ) -> Any:  # what the overloads say
        """Register a function as the handler of a task name (its own name, unless given).

        ``max_attempts`` is short for ``retry=Retry(max_attempts=…)``. Raises ConfigError.
        """
        policy = retry or self._retry
        if max_attempts is not None:
            if retry is not None:
                raise ConfigError("give max_attempts or retry=Retry(max_attempts=…), not both")
            policy = Retry(max_attempts, policy.base, policy.factor, policy.cap, policy.on, policy.never_on)
        decorator = _Decorator(
            self,
            name=name,
            queue=check_name(queue, "queue"),
            priority=Options(priority=priority).priority or 0,
            retry=policy,
            timeout_s=self._timeout_s if isinstance(timeout, _Unset) else _timeout_s(timeout),
        )
        return decorator if function is None else decorator(function)

    def register(self, one: Handler) -> Task[..., Any]:
        """Add a handler that was described by hand; raises ConfigError when its name is taken."""
        self.handlers.add(one)
        return Task(one, self._client)

    def enqueue(self, name: str, payload: dict[str, Any] | None = None, **options: Any) -> Enqueued:
        """Add a task by name, for handlers that live in another program; options as in ``using``."""
        chosen = Options().changed(**options)
        return self._client.enqueue(chosen.task(check_name(name, "name"), payload or {}), chosen)

    async def aenqueue(self, name: str, payload: dict[str, Any] | None = None, **options: Any) -> Enqueued:
        """Do what ``enqueue`` does, without blocking the event loop."""
        chosen = Options().changed(**options)
        return await self._client.aenqueue(chosen.task(check_name(name, "name"), payload or {}), chosen)

    def enqueue_many(
        self,
        tasks: Iterable[NewTask],
        *,
        on_conflict: OnConflict = "ignore",
        connection: AnyConnection | None = None,
    ) -> EnqueuedMany:
        """Add any number of tasks, all or none, in constant memory: ``task.prepare(…)`` makes them.

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
        self.before_hooks.append(hook)
        return hook

    def after_task(self, hook: AfterHook) -> AfterHook:
        """Register a function that runs after each handler with what becomes of the task.

        What it raises is logged and changes nothing.
        """
        self.after_hooks.append(hook)
        return hook

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
        name = self._settings.pop("name") or function.__name__
        return self._app.register(handler(function, name=check_name(name, "name"), **self._settings))


def _timeout_s(timeout: Timeout) -> float | None:
    value = None if timeout is None else seconds(timeout, field="timeout")
    if value == 0:
        raise ConfigError("timeout must be above 0 seconds; None means no timeout")
    return value
