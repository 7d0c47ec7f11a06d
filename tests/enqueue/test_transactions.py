"""A task exists exactly if the transaction that enqueued it commits."""

from typing import Any

import psycopg
import pytest

from pgtasks import App, EnqueueError
from tests.access import as_role
from tests.database import Connection
from tests.enqueue.conftest import Live


def define(app: App) -> Any:
    """Register the handler that the tests enqueue."""

    @app.task
    def add(a: int, b: int = 0) -> int:
        return a + b

    return add


def roll_back(inner: Any) -> None:
    """End a transaction block without an error."""
    raise psycopg.Rollback(inner)


def test_a_rolled_back_transaction_leaves_no_task(app: App, dsn: str, live: Live) -> None:
    """Neither a single task nor a bulk remains."""
    add = define(app)
    with psycopg.connect(as_role(dsn, "producer")) as caller:
        add.using(connection=caller).enqueue(1)
        app.enqueue_many([add.prepare(2), add.using(unique_key="k").prepare(3)], connection=caller)
        assert live.count() == 0
        caller.rollback()
    assert live.count() == 0


def test_a_bulk_that_begins_the_transaction_does_not_end_it(app: App, dsn: str, live: Live) -> None:
    """Without autocommit the first statement opens the transaction, and only the caller commits it."""
    add = define(app)
    with psycopg.connect(as_role(dsn, "producer")) as caller:
        app.enqueue_many([add.prepare(1)], connection=caller)
        assert live.count() == 0
        caller.rollback()
        app.enqueue_many([add.prepare(1)], connection=caller)
        caller.commit()
    assert live.count() == 1


def test_a_committed_transaction_leaves_one_task_each(app: App, dsn: str, live: Live) -> None:
    """They appear with the commit, not before."""
    add = define(app)
    with psycopg.connect(as_role(dsn, "producer")) as caller:
        assert add.using(connection=caller).enqueue(1, b=2).created
        assert live.count() == 0
        caller.commit()
    assert live.only("name, payload, queue, state, attempt") == {
        "name": "add",
        "payload": {"a": 1, "b": 2},
        "queue": "default",
        "state": "queued",
        "attempt": 0,
    }


def test_a_savepoint_that_is_rolled_back_takes_its_task_along(app: App, dsn: str, live: Live) -> None:
    """The tasks before and after it stay."""
    add = define(app)
    with psycopg.connect(as_role(dsn, "producer")) as caller, caller.transaction():
        add.using(connection=caller).enqueue(1)
        with caller.transaction() as inner:
            add.using(connection=caller).enqueue(2)
            app.enqueue_many([add.prepare(3)] * 3, connection=caller)
            roll_back(inner)
        add.using(connection=caller).enqueue(4)
    assert live.count() == 2


def test_an_autocommit_connection_commits_each_enqueue(app: App, connection: Connection, live: Live) -> None:
    """A bulk is one transaction even there."""
    add = define(app)
    add.using(connection=connection).enqueue(1)
    assert live.count() == 1

    def broken() -> Any:
        yield add.prepare(2)
        raise RuntimeError("the source of the tasks broke")

    with pytest.raises(RuntimeError, match="the source"):
        app.enqueue_many(broken(), connection=connection)
    assert live.count() == 1


async def test_async_transactions_decide_as_well(app: App, dsn: str, live: Live) -> None:
    """Rollback, savepoint and commit, through an async connection."""
    add = define(app)
    async with await psycopg.AsyncConnection.connect(as_role(dsn, "producer")) as caller:
        await add.using(connection=caller).aenqueue(1)
        await app.aenqueue_many([add.prepare(2), add.using(unique_key="k").prepare(2)], connection=caller)
        await caller.rollback()
        assert live.count() == 0
        async with caller.transaction():
            await add.using(connection=caller).aenqueue(3)
            async with caller.transaction() as inner:
                await add.using(connection=caller).aenqueue(4)
                roll_back(inner)
        await app.aenqueue_many([add.prepare(5)], connection=caller)
        assert live.count() == 1
        await caller.commit()
    assert live.count() == 2


async def test_the_wrong_kind_of_connection_is_named(app: App, dsn: str, connection: Connection, live: Live) -> None:
    """An async connection needs aenqueue, and the other way round; nothing else is a connection."""
    add = define(app)
    async with await psycopg.AsyncConnection.connect(as_role(dsn, "producer"), autocommit=True) as caller:
        with pytest.raises(EnqueueError, match="aenqueue"):
            add.using(connection=caller).enqueue(1)
        with pytest.raises(EnqueueError, match="not async"):
            await add.using(connection=connection).aenqueue(1)
        with pytest.raises(EnqueueError, match="psycopg connection, got str"):
            add.using(connection="host=db").enqueue(1)
    assert live.count() == 0


def test_a_refused_task_leaves_the_callers_transaction_usable(app: App, dsn: str, live: Live) -> None:
    """What Python can check never reaches the server, so the transaction goes on."""
    add = define(app)
    with psycopg.connect(as_role(dsn, "producer")) as caller:
        with pytest.raises(EnqueueError):
            add.using(connection=caller).enqueue(a="\x00")
        add.using(connection=caller).enqueue(1)
        caller.commit()
    assert live.count() == 1
