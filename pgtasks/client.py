"""Enqueueing tasks: options checked, payloads encoded, through the caller's connection or ours."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypedDict, Unpack, get_args

from pgtasks import payload as json_payload
from pgtasks.errors import ConfigError, DatabaseError, EnqueueError, PayloadError, UniqueConflict, seconds
from pgtasks.handlers import ArgumentsError
from pgtasks.model import Enqueued, EnqueuedMany, NewTask, OnConflict
from pgtasks.retry import MAX_ATTEMPTS_MOST
from pgtasks.settings import (
    NAME_CHARACTERS_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    UNIQUE_KEY_CHARACTERS_MAX,
    Pooler,
    check_integer,
    check_name,
    check_pooler,
)
from pgtasks.store import producing
from pgtasks.store.pools import Pools
from pgtasks.store.session import AsyncConnection, SyncConnection, afetch_one, constraint_of, fetch_one, is_async

AnyConnection: TypeAlias = SyncConnection | AsyncConnection


class EnqueueOptions(TypedDict, total=False):
    """The keyword options of an enqueue; None is as good as not given."""

    queue: str | None
    priority: int | None
    run_at: datetime | None
    delay: float | timedelta | None
    unique_key: str | None
    max_attempts: int | None
    timeout: float | timedelta | None
    headers: dict[str, Any] | None
    on_conflict: OnConflict | None
    connection: AnyConnection | None


@dataclass(frozen=True, slots=True)
class Options:
    """How a task is enqueued; unset fields stay None. Checked when made (EnqueueError)."""

    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    delay: float | timedelta | None = None
    unique_key: str | None = None
    max_attempts: int | None = None
    timeout: float | timedelta | None = None
    headers: dict[str, Any] | None = None
    on_conflict: OnConflict = "ignore"
    connection: AnyConnection | None = None

    def __post_init__(self) -> None:
        """Refuse what the database would refuse, naming the field."""
        try:
            self._check()
        except ConfigError as error:
            raise EnqueueError(str(error)) from None

    def _check(self) -> None:
        if self.queue is not None:
            check_name(self.queue, "queue")
        check_integer("priority", self.priority, PRIORITY_MIN, PRIORITY_MAX)
        check_integer("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS_MOST)
        if self.delay is not None:
            seconds(self.delay)
        if self.timeout is not None and seconds(self.timeout, field="timeout") == 0:
            raise ConfigError("timeout must be above 0 seconds")
        if self.run_at is not None:
            _check_instant(self.run_at, self.delay)
        if self.unique_key is not None:
            _check_key(self.unique_key)
        if self.on_conflict not in get_args(OnConflict):
            raise ConfigError(f"on_conflict must be ignore, raise or replace, got {self.on_conflict!r}")
        if self.connection is not None:
            try:
                is_async(self.connection)
            except TypeError as error:
                raise ConfigError(str(error)) from None

    def changed(self, **given: Unpack[EnqueueOptions]) -> Options:
        """Give these options with the given ones set; raises EnqueueError."""
        known = {option.name for option in fields(self)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise EnqueueError(f"unknown option {unknown[0]!r}; options are {', '.join(sorted(known))}")
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return replace(self, **chosen)

    def task(self, name: str, payload: Any, *, queue: str | None = None, priority: int | None = None) -> NewTask:
        """Make the task these options describe; raises PayloadError or EnqueueError."""
        # By position: by name it takes twice as long, and a bulk does it for each task.
        return NewTask(
            name,
            json_payload.dumps(payload),
            self.queue or queue,
            priority if self.priority is None else self.priority,
            self.run_at,
            None if self.delay is None else seconds(self.delay),
            self.unique_key,
            self.max_attempts,
            None if self.timeout is None else seconds(self.timeout),
            None if self.headers is None else json_payload.dumps(self.headers, root="headers"),
        )


def _check_instant(run_at: object, delay: object) -> None:
    if delay is not None:
        raise ConfigError("give run_at or delay, not both")
    if not isinstance(run_at, datetime) or run_at.tzinfo is None:
        raise ConfigError(
            f"run_at must be a datetime with a time zone, such as datetime.now(timezone.utc), got {run_at!r}"
        )
    if not 1970 <= run_at.year < 9999:  # noqa: PLR2004 - the years the schema's CHECK takes
        raise ConfigError(f"run_at must be between the years 1970 and 9998, got {run_at.isoformat()}")


def _check_key(unique_key: object) -> None:
    if not isinstance(unique_key, str) or not 1 <= len(unique_key) <= UNIQUE_KEY_CHARACTERS_MAX:
        raise ConfigError(f"unique_key must be text of 1 to {UNIQUE_KEY_CHARACTERS_MAX} characters")
    if json_payload.storable(unique_key, NAME_CHARACTERS_MAX * 10) != unique_key:
        raise ConfigError("unique_key must not hold NUL characters or lone surrogates")


class Client:
    """Adds tasks, through the caller's connection or its own pools."""

    def __init__(self, dsn: str | None, pooler: Pooler | None = None) -> None:
        if pooler is not None:
            check_pooler(pooler, "pooler")
        self._given_dsn, self._given_pooler = dsn, pooler
        self._pools = Pools(self.dsn, self.pooler)

    def dsn(self) -> str:
        """Give the connection string: the one given, else PGTASKS_DSN; raises ConfigError without one."""
        dsn = self._given_dsn or os.environ.get("PGTASKS_DSN")
        if not dsn:
            raise ConfigError("no database: pass App(dsn=…) or set PGTASKS_DSN to a PostgreSQL connection string")
        return dsn

    def pooler(self) -> Pooler:
        """Give the kind of pooler that the connection string leads through: the one given, else PGTASKS_POOLER's."""
        return self._given_pooler or check_pooler(os.environ.get("PGTASKS_POOLER") or "none", "PGTASKS_POOLER")

    def enqueue(self, task: NewTask, options: Options) -> Enqueued:
        """Add one task; raises EnqueueError, UniqueConflict or DatabaseError."""
        statement = producing.enqueue(task, options.on_conflict)
        connection = _sync(options.connection)
        try:
            if connection is not None:
                found = fetch_one(connection, statement)
            else:
                with self._pools.connection() as ours:
                    found = fetch_one(ours, statement)
        except DatabaseError as error:
            raise _refused(error) from error
        return _checked(found, task, options)

    async def aenqueue(self, task: NewTask, options: Options) -> Enqueued:
        """Add one task; raises EnqueueError, UniqueConflict or DatabaseError."""
        statement = producing.enqueue(task, options.on_conflict)
        connection = _async(options.connection)
        try:
            if connection is not None:
                found = await afetch_one(connection, statement)
            else:
                async with self._pools.aconnection() as ours:
                    found = await afetch_one(ours, statement)
        except DatabaseError as error:
            raise _refused(error) from error
        return _checked(found, task, options)

    def enqueue_many(self, tasks: Iterable[NewTask], options: Options) -> EnqueuedMany:
        """Add any number of tasks, all or none; raises EnqueueError or DatabaseError."""
        connection, numbered = _sync(options.connection), _numbered(tasks)
        try:
            if connection is not None:
                return producing.enqueue_many(connection, numbered, options.on_conflict, ours=False)
            with self._pools.connection() as ours:
                return producing.enqueue_many(ours, numbered, options.on_conflict, ours=True)
        except DatabaseError as error:
            raise _refused(error) from error

    async def aenqueue_many(self, tasks: Iterable[NewTask], options: Options) -> EnqueuedMany:
        """Add any number of tasks, all or none; raises EnqueueError or DatabaseError."""
        connection, numbered = _async(options.connection), _numbered(tasks)
        try:
            if connection is not None:
                return await producing.aenqueue_many(connection, numbered, options.on_conflict, ours=False)
            async with self._pools.aconnection() as ours:
                return await producing.aenqueue_many(ours, numbered, options.on_conflict, ours=True)
        except DatabaseError as error:
            raise _refused(error) from error

    def close(self) -> None:
        """Close the connections of this process's threads."""
        self._pools.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._pools.aclose()


def _numbered(tasks: Iterable[NewTask]) -> Iterator[NewTask]:
    """Pass tasks on; an error of the iterable or of an item names its position."""
    index = 0
    source = iter(tasks)
    while True:
        try:
            task = next(source)
        except StopIteration:
            return
        except PayloadError as error:
            raise PayloadError(f"tasks[{index}]: {error}", path=error.path) from error
        except ArgumentsError as error:
            raise ArgumentsError(f"tasks[{index}]: {error}") from error
        except EnqueueError as error:
            raise EnqueueError(f"tasks[{index}]: {error}") from error
        if not isinstance(task, NewTask):
            raise EnqueueError(f"tasks[{index}]: expected what task.prepare(…) gives, got {type(task).__name__}")
        yield task
        index += 1


def _checked(found: Enqueued | None, task: NewTask, options: Options) -> Enqueued:
    if found is None:
        raise EnqueueError(f"task {task.name!r} was not inserted: the statement returned no row")
    if not found.created and options.on_conflict == "raise":
        raise UniqueConflict(task.unique_key or "", found.id)
    return found


def _refused(error: DatabaseError) -> Exception:
    """Turn a refusal of the task itself into an EnqueueError; leave trouble with the database alone."""
    # The first line only: the next ones show the row, and thus the payload.
    first_line = str(error).splitlines()[0]
    constraint = constraint_of(error)
    if constraint is not None and error.sqlstate == "23514":
        return EnqueueError(f"refused by the database: {constraint.replace('_', ' ')} ({first_line})")
    if error.sqlstate is not None and error.sqlstate[:2] in {"22", "23", "54"}:
        return EnqueueError(f"refused by the database: {first_line}")
    return error


def _sync(connection: AnyConnection | None) -> SyncConnection | None:
    if connection is None or not is_async(connection):
        return connection  # type: ignore[return-value]  # is_async cannot narrow a generic union
    raise EnqueueError("this connection is async: use await task.aenqueue(…)")


def _async(connection: AnyConnection | None) -> AsyncConnection | None:
    if connection is None or is_async(connection):
        return connection  # type: ignore[return-value]  # is_async cannot narrow a generic union
    raise EnqueueError("this connection is not async: use task.enqueue(…)")
