"""enqueue_many takes any iterable, in constant memory, and adds all of it or nothing."""

import tracemalloc
from collections.abc import Iterator

import psycopg

from pgtasks import App, EnqueuedMany, NewTask
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


def test_a_hundred_thousand_rows_take_constant_memory(app: App, dsn: str, connection: Connection) -> None:
    """Inside a caller's transaction, with keys mixed in; then rolled back, and committed through our own."""
    app.enqueue("work", unique_key="taken")
    expected = EnqueuedMany(created=ROWS - ROWS // 100, existing=ROWS // 100)
    with psycopg.connect(dsn) as caller:
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
    async with await psycopg.AsyncConnection.connect(dsn) as caller:
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
