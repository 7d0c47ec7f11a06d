"""U-01, U-02: at most one live task per key, honest answers, and a running task is never touched."""

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from pgtasks import App, Enqueued, EnqueuedMany, NewTask, UniqueConflict
from pgtasks.model import OnConflict
from tests.access import as_role
from tests.database import Connection, rows, value
from tests.enqueue.conftest import Live

CLAIM = """
WITH lease AS (
    INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids)
    SELECT gen_random_uuid(), clock_timestamp() + interval '1 hour', array_agg(id) FROM pgtasks.tasks RETURNING id
)
UPDATE pgtasks.tasks SET state = 'running', attempt = 1, claimed_at = clock_timestamp(), lease_id = lease.id
FROM lease
"""


def test_fifty_concurrent_enqueues_of_one_key_leave_one_task(app: App, dsn: str, live: Live) -> None:
    """U-02: with random rollbacks; everybody gets an id, and who committed a new task got its id."""
    together = threading.Barrier(50)
    rng = random.Random(7)
    commits = [rng.random() < 0.5 for _ in range(50)]

    def enqueue(commit: bool) -> Enqueued | None:  # noqa: FBT001 - mapped over a list
        with psycopg.connect(as_role(dsn, "producer")) as caller:
            together.wait(15)
            added = app.enqueue("work", unique_key="k", connection=caller)
            if commit:
                caller.commit()
            else:
                caller.rollback()
            return added if commit else None

    with ThreadPoolExecutor(50) as pool:
        found = [added for added in pool.map(enqueue, commits) if added is not None]
    assert len(found) == sum(commits)
    assert live.count() == 1
    assert len({added.id for added in found}) == 1
    assert Counter(added.created for added in found)[True] == 1


def test_an_enqueue_waits_for_the_first_and_survives_its_rollback(app: App, dsn: str, live: Live) -> None:
    """U-02: a rolled-back first insert does not lose the second."""
    with psycopg.connect(as_role(dsn, "producer")) as first, ThreadPoolExecutor(1) as pool:
        app.enqueue("work", unique_key="k", connection=first)
        second = pool.submit(app.enqueue, "work", unique_key="k")
        first.rollback()
        assert second.result(10).created
    assert live.count() == 1


@pytest.mark.parametrize("pair", [("é", "e\u0301"), ("Job", "job"), ("k", "k "), ("ß", "ss"), ("\u200bk", "k")])
def test_keys_are_compared_bytewise(app: App, live: Live, pair: tuple[str, str]) -> None:
    """U-02: neither normal form nor case nor trailing blanks are folded."""
    assert all(app.enqueue("work", unique_key=key).created for key in pair)
    assert not any(app.enqueue("work", unique_key=key).created for key in pair)
    assert live.count() == 2


def test_ignore_gives_the_living_tasks_id(app: App, live: Live) -> None:
    """And leaves it as it was."""
    first = app.enqueue("work", {"n": 1}, unique_key="k")
    assert app.enqueue("other", {"n": 2}, unique_key="k") == Enqueued(first.id, created=False)
    assert live.only("name, payload") == {"name": "work", "payload": {"n": 1}}


def test_replace_changes_a_waiting_task(app: App, live: Live) -> None:
    """All values are the new ones; attempts start again."""
    first = app.enqueue("work", {"n": 1}, unique_key="k", max_attempts=2)
    again = app.enqueue("other", {"n": 2}, unique_key="k", on_conflict="replace", queue="q", priority=4)
    assert again == Enqueued(first.id, created=False)
    assert live.only("name, payload, queue, priority, max_attempts, attempt") == {
        "name": "other",
        "payload": {"n": 2},
        "queue": "q",
        "priority": 4,
        "max_attempts": None,
        "attempt": 0,
    }


@pytest.mark.parametrize("on_conflict", ["ignore", "replace"])
def test_a_running_task_is_never_touched(app: App, connection: Connection, on_conflict: OnConflict) -> None:
    """U-01: state, lease and fence stay, from many threads at once, singly and in bulk."""
    first = app.enqueue("work", {"n": 1}, unique_key="k")
    connection.execute(CLAIM)
    before = rows(connection, "SELECT t.*, t.xmin FROM pgtasks.tasks t")

    def again(number: int) -> bool:
        one = app.enqueue("work", {"n": number}, unique_key="k", on_conflict=on_conflict)
        assert one == Enqueued(first.id, created=False)
        return app.enqueue_many([_task("k", number)], on_conflict=on_conflict) == EnqueuedMany(0, 1)

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(again, range(100)))
    assert rows(connection, "SELECT t.*, t.xmin FROM pgtasks.tasks t") == before


def test_replace_rings_the_bell(app: App, dsn: str, connection: Connection) -> None:
    """A sleeping worker learns that the task is due earlier."""
    app.enqueue("work", unique_key="k", delay=3600)
    with psycopg.connect(dsn, autocommit=True) as sleeper:
        sleeper.execute("LISTEN pgtasks")
        sleeper.execute("SELECT pg_advisory_lock(hashtextextended('default', 7074617))")
        app.enqueue("work", unique_key="k", on_conflict="replace")
        assert [bell.payload for bell in sleeper.notifies(timeout=5, stop_after=1)] == ["default"]
    assert value(connection, "SELECT run_at <= clock_timestamp() FROM pgtasks.tasks")


def test_a_conflict_does_not_abort_the_callers_transaction(app: App, dsn: str, live: Live) -> None:
    """It is raised in Python; single and bulk, the transaction goes on and commits."""
    first = app.enqueue("work", unique_key="k")
    bulk = [_task(None), _task("new"), _task("k")]
    with psycopg.connect(as_role(dsn, "producer")) as caller:
        app.enqueue("before", connection=caller)
        with pytest.raises(UniqueConflict, match="'k' belongs to living task") as caught:
            app.enqueue("work", unique_key="k", on_conflict="raise", connection=caller)
        assert (caught.value.task_id, caught.value.unique_key, caught.value.position) == (first.id, "k", None)
        with pytest.raises(UniqueConflict, match=r"^tasks\[2\]: unique_key 'k' belongs") as caught:
            app.enqueue_many(bulk, on_conflict="raise", connection=caller)
        assert (caught.value.task_id, caught.value.unique_key, caught.value.position) == (first.id, "k", 2)
        app.enqueue("after", connection=caller)
        caller.commit()
    assert live.count() == 3


async def test_a_conflict_is_the_same_for_async_callers(app: App, dsn: str, live: Live) -> None:
    """Through their own connection and through the app's."""
    app.enqueue("work", unique_key="k")
    bulk = [_task(None), _task("k")]
    with pytest.raises(UniqueConflict, match=r"^tasks\[1\]"):
        await app.aenqueue_many(bulk, on_conflict="raise")
    with pytest.raises(UniqueConflict):
        await app.aenqueue("work", unique_key="k", on_conflict="raise")
    async with await psycopg.AsyncConnection.connect(as_role(dsn, "producer")) as caller:
        with pytest.raises(UniqueConflict):
            await app.aenqueue_many(bulk, on_conflict="raise", connection=caller)
        await app.aenqueue_many([_task(None)], connection=caller)
        await caller.commit()
    await app.aclose()
    assert live.count() == 2


def test_a_key_twice_in_one_bulk_is_a_conflict_as_well(app: App, connection: Connection, live: Live) -> None:
    """The first one wins; with "replace" the last one; with "raise" none is added."""
    bulk = [_task("a"), _task("b"), _task("a", 2)]
    with pytest.raises(UniqueConflict, match=r"^tasks\[2\]"):
        app.enqueue_many(bulk, on_conflict="raise")
    assert live.count() == 0
    assert app.enqueue_many(bulk) == EnqueuedMany(2, 1)
    assert app.enqueue_many(bulk, on_conflict="replace") == EnqueuedMany(0, 3)
    assert value(connection, "SELECT payload FROM pgtasks.tasks WHERE unique_key = 'a'") == {"n": 2}


def test_the_key_is_free_again_when_the_task_is_finished(app: App, connection: Connection) -> None:
    """Uniqueness is about living tasks."""
    first = app.enqueue("work", unique_key="k")
    assert value(connection, "SELECT pgtasks.cancel(%s)", first.id) == "cancelled"
    second = app.enqueue("work", unique_key="k", on_conflict="raise")
    assert second.created
    assert second.id != first.id


def _task(key: str | None, number: int = 1) -> NewTask:
    """Return a task for a bulk."""
    return NewTask("bulk", f'{{"n": {number}}}', "default", 0, unique_key=key)
