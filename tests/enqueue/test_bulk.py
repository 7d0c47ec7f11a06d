"""enqueue_many takes any iterable, in constant memory, and adds all of it or nothing."""

import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtasks import App, EnqueuedMany, EnqueueError, NewTask
from tests.access import as_role
from tests.database import Connection, rows
from tests.enqueue.conftest import Live

ROWS = 100_000
# A chunk of five thousand tasks and its statement; all the rows together would take over 60 MB.
MEMORY_MB_MAX = 20


def mixed(count: int) -> Iterator[NewTask]:
    """Yield tasks of which every tenth has a key, and every hundredth one that is taken."""
    for number in range(count):
        key = None if number % 10 else "taken" if number % 100 == 0 else f"key {number}"
        yield NewTask("work", f'{{"n":{number},"text":"{"x" * 100}"}}', "default", 0, unique_key=key)


def test_a_delay_counts_from_when_its_task_was_made(app: App, connection: Connection) -> None:
    """Not from when the bulk began, with an iterable that takes its time."""

    def slow() -> Iterator[NewTask]:
        yield NewTask("work", "{}", "default", 0, delay_s=100.0)
        time.sleep(0.3)  # stands for an iterable that waits for something
        yield NewTask("work", "{}", "default", 0, delay_s=100.0)

    app.enqueue_many(slow())
    ((spread,),) = rows(connection, "SELECT extract(EPOCH FROM max(run_at) - min(run_at))::float FROM pgtasks.tasks")
    assert spread >= 0.3


def test_a_hundred_thousand_rows_take_constant_memory(app: App, dsn: str, connection: Connection) -> None:
    """Inside a caller's transaction, with keys mixed in; then rolled back, and committed through our own."""
    app.enqueue("work", unique_key="taken")
    expected = EnqueuedMany(created=ROWS - ROWS // 100, existing=ROWS // 100)
    with psycopg.connect(as_role(dsn, "producer")) as caller:
        app.enqueue_many(mixed(100), connection=caller)
        caller.rollback()
        tracemalloc.start()
        assert app.enqueue_many(mixed(ROWS), connection=caller) == expected
        peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        caller.rollback()
    assert peak_mb < MEMORY_MB_MAX
    assert rows(connection, "SELECT count(*) FROM pgtasks.tasks") == [(1,)]
    assert app.enqueue_many(mixed(10_001)) == EnqueuedMany(9900, 101)
    found = rows(connection, "SELECT count(*), count(DISTINCT (payload ->> 'n')::int) FROM pgtasks.tasks")
    assert found == [(9901, 9900)]


async def test_async_bulks_are_the_same(app: App, dsn: str, live: Live) -> None:
    """In a caller's transaction and through the loop's own pool."""
    async with await psycopg.AsyncConnection.connect(as_role(dsn, "producer")) as caller:
        assert await app.aenqueue_many(mixed(12_000), connection=caller) == EnqueuedMany(11_881, 119)
        await caller.rollback()
    assert live.count() == 0
    assert await app.aenqueue_many(mixed(100)) == EnqueuedMany(100, 0)
    await app.aclose()
    assert live.count() == 100


def test_nothing_is_a_bulk_too(app: App, live: Live) -> None:
    """An empty iterable adds nothing and is no error."""
    assert app.enqueue_many([]) == EnqueuedMany(0, 0)
    assert live.count() == 0


def _work(payload: Any) -> None:
    """Stand for a handler; nothing runs it here."""


def _database(dsn: str) -> sql.Identifier:
    return sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))


def test_large_tasks_go_in_in_small_chunks(app: App, live: Live) -> None:
    """A chunk is bounded by its size too: keyed ones are one JSON value, which PostgreSQL limits."""
    work = app.task(name="work")(_work)
    big = "x" * 1_000_000
    done = app.enqueue_many(work.using(unique_key=f"k{n}").prepare(big) for n in range(40))
    assert (done.created, live.count()) == (40, 40)


def test_a_source_may_be_slower_than_a_session_may_idle(app: App, dsn: str, live: Live) -> None:
    """The transaction of a bulk idles while the iterable works; what a role allows must not end it."""
    work = app.task(name="work")(_work)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} SET idle_in_transaction_session_timeout = 200").format(_database(dsn)))
    try:

        def slow() -> Iterator[NewTask]:
            yield work.prepare(1)
            yield from [work.prepare(2)] * 5000
            time.sleep(0.6)  # the source's own work
            yield work.prepare(3)

        assert app.enqueue_many(slow()).created == 5002
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(sql.SQL("ALTER DATABASE {} RESET idle_in_transaction_session_timeout").format(_database(dsn)))


def test_a_stream_says_the_same_as_a_statement(app: App, connection: Connection) -> None:
    """Every column, whatever its text holds: what COPY reads as a mark is written as one."""
    due = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    odd = app.task(name=r"odd\tname\N", queue=r"que\ue", priority=-3)(_work)
    task = odd.using(run_at=due, max_attempts=7, timeout=90_061.5, headers={"trace": 'a\tb\\N\n"é\U0001f600"'})
    payload = ["tab\there", "line\nhere", r"\N", "back\\slash", "é\U0001f600", {"nested": [1.5, None, True]}]
    task.enqueue(payload)
    app.enqueue_many([task.prepare(payload), NewTask(odd.name, '{"payload":\n\t1}', r"que\ue", -3, delay_s=3600.0)])
    one, streamed, spaced = rows(
        connection,
        "SELECT name, queue, priority, payload, run_at, max_attempts, timeout, headers FROM pgtasks.tasks ORDER BY id",
    )
    assert one == streamed
    assert one[3] == {"payload": payload}
    assert spaced[:4] == (odd.name, r"que\ue", -3, {"payload": 1})
    assert timedelta(minutes=59) < spaced[4] - datetime.now(UTC) < timedelta(minutes=61)


def test_a_stream_may_be_slower_than_a_statement_may_last(dsn: str, live: Live) -> None:
    """Tasks are sent while the iterable goes on, and what limits a statement must not end the stream."""
    app = App(make_conninfo(dsn, options="-c statement_timeout=200"))
    work = app.task(name="work")(_work)

    def slow() -> Iterator[NewTask]:
        yield from [work.prepare(1)] * 1000
        time.sleep(0.5)  # the source's own work, in the middle of a chunk
        yield work.prepare(2)

    assert app.enqueue_many(slow()).created == 1001
    app.close()
    assert live.count() == 1001


def test_the_source_may_use_the_callers_connection(app: App, dsn: str, live: Live) -> None:
    """Rows that a server-side cursor reads in the same transaction become tasks."""
    work = app.task(name="work")(_work)
    with psycopg.connect(as_role(dsn, "producer")) as caller, caller.cursor("numbers") as numbers:
        numbers.itersize = 100
        numbers.execute("SELECT generate_series(1, 6000)")
        assert app.enqueue_many((work.prepare(n) for (n,) in numbers), connection=caller).created == 6000
    assert live.count() == 6000


def test_a_role_with_execute_alone_adds_many(app: App, dsn: str, connection: Connection, live: Live) -> None:
    """X-01: without INSERT on the table they go through the SQL function, keyed or not."""
    work = app.task(name="work")(_work)
    connection.execute("DROP ROLE IF EXISTS bulk_producer; CREATE ROLE bulk_producer")
    connection.execute("GRANT USAGE ON SCHEMA pgtasks TO bulk_producer")
    connection.execute("GRANT EXECUTE ON FUNCTION pgtasks.enqueue_many TO bulk_producer")
    try:
        with psycopg.connect(dsn) as producer:
            producer.execute("SET ROLE bulk_producer")
            done = app.enqueue_many((work.prepare(n) for n in range(10)), connection=producer)
        assert (done.created, live.count()) == (10, 10)
    finally:
        connection.execute("DROP OWNED BY bulk_producer; DROP ROLE bulk_producer")


def test_what_concerns_the_whole_bulk_is_not_taken_from_a_task(app: App, connection: Connection) -> None:
    """Dropped silently, a task would survive a rollback, or overwrite what it must not."""
    work = app.task(name="work")(_work)
    for bound in (work.using(connection=connection), work.using(unique_key="k", on_conflict="raise")):
        with pytest.raises(EnqueueError, match="enqueue_many"):
            bound.prepare(1)


def test_any_cursor_class_of_the_callers_connection_will_do(app: App, dsn: str, live: Live) -> None:
    """Frameworks set client-side cursors, which cannot read binary results."""
    work = app.task(name="work")(_work)
    with psycopg.connect(as_role(dsn, "producer"), cursor_factory=psycopg.ClientCursor) as caller:
        assert work.using(connection=caller).enqueue(1).created
        assert app.enqueue_many([work.prepare(2)], connection=caller).created == 1
    assert live.count() == 2
