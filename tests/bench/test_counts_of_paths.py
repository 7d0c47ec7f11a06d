"""What the other paths cost in rows, transactions and WAL: a failed attempt, a delay, no history, many at once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from pgtasks import App
from pgtasks.store.producing import CHUNK_ROWS
from tests.bench.counting import Cost, Rows, difference, no_sessions, read, wal_bytes
from tests.database import Server, rows, value, wait_until
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.pg, pytest.mark.timeout(60)]

TASKS = 2_000
# Where a handler ends before the next one is claimed, a few batches are small.
BATCHES_BESIDES = 20


class Paths(NamedTuple):
    """What TASKS failing, TASKS delayed and TASKS tasks of a queue without history cost; the WAL of the last."""

    cost: Cost
    lean_wal_bytes: int


@pytest.fixture(scope="module")
def paths(server: Server) -> Iterator[Paths]:
    """One worker that ran all three."""
    dsn = server.create(migrated=True)
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows(connection, "INSERT INTO pgtasks.queues (name, keep_completed) VALUES ('lean', false)")
        rows(connection, "SELECT pgtasks.pause('lean')")
        for name, queue, delay_s in (("fail_once", "default", 0), ("noop", "default", 1), ("noop", "lean", 0)):
            rows(
                connection,
                "INSERT INTO pgtasks.tasks (name, queue, run_at)"
                " SELECT %s, %s, clock_timestamp() + %s * interval '1 s' FROM generate_series(1, %s)",
                *(name, queue, delay_s, TASKS),
            )
        rows(connection, "VACUUM (ANALYZE) pgtasks.tasks")
        before = read(connection)
        with WorkerProcess("tests.apps.counted:app", dsn, "-q", "default", "-q", "lean", "--log-level=error") as worker:
            wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.history") == 2 * TASKS, 30)
            lean_wal_bytes = -wal_bytes(connection)
            rows(connection, "SELECT pgtasks.resume('lean')")
            wait_until(lambda: not value(connection, "SELECT count(*) FROM pgtasks.tasks"), 30)
            lean_wal_bytes += wal_bytes(connection)
            worker.terminate()
            assert worker.wait() == 0, worker.output()
        wait_until(lambda: no_sessions(connection))
        yield Paths(difference(before, read(connection)), lean_wal_bytes)
    server.drop(dsn)


def test_a_failed_attempt_costs_one_update_and_one_row(paths: Paths) -> None:
    """Its task is claimed twice and put back once; the attempt is written down. A delay costs nothing at all."""
    tables = paths.cost.tables
    claims, retries, ends = 4 * TASKS, TASKS, 3 * TASKS
    assert (tables["tasks"].inserted, tables["tasks"].updated) == (0, claims + retries)
    assert tables["tasks"].deleted == ends
    assert tables["attempts"] == Rows(TASKS, 0, 0, 0)
    assert tables["dead_letters"] == Rows(0, 0, 0, 0)


def test_a_queue_without_history_has_no_row_of_it(paths: Paths) -> None:
    """The others have one each, which is never touched again."""
    assert paths.cost.tables["history"] == Rows(2 * TASKS, 0, 0, 0)


def test_claims_touch_no_index_whatever_is_claimed(paths: Paths) -> None:
    """Only what changes the time of a task does: putting it back."""
    assert paths.cost.tables["tasks"].hot >= 0.95 * 4 * TASKS


def test_retries_and_delays_are_claimed_in_batches(paths: Paths) -> None:
    """A lease is one row for up to a hundred tasks, also of those that come back or fall due."""
    leases = paths.cost.tables["leases"]
    assert leases.inserted <= 4 * TASKS * 0.02 + BATCHES_BESIDES
    assert leases.deleted == leases.inserted
    assert paths.cost.rollbacks == 0


def test_the_log_grows_by_less_than_500_bytes_per_task_without_history(paths: Paths) -> None:
    """From claim to nothing."""
    assert paths.lean_wal_bytes / TASKS <= 500


class Traced(NamedTuple):
    """What went over the wire for one call: answers that were waited for, and bells rung."""

    round_trips: int
    bells: int


def traced(dsn: str, tasks: int) -> Traced:
    """Enqueue so many tasks by one call on a traced connection, while somebody listens to the queue's bell."""
    app = App(dsn=dsn)
    noop = app.task(name="noop")(lambda: None)
    new = [noop.prepare() for _ in range(tasks)]
    with (
        psycopg.connect(dsn, autocommit=True) as listener,
        psycopg.connect(dsn, autocommit=True) as connection,
        tempfile.TemporaryFile() as trace,
    ):
        listener.execute("LISTEN pgtasks")
        connection.pgconn.trace(trace.fileno())
        assert app.enqueue_many(new, connection=connection).created == tasks
        connection.pgconn.untrace()
        heard = list(listener.notifies(timeout=0.2))
        trace.seek(os.SEEK_SET)
        return Traced(trace.read().count(b"ReadyForQuery"), len(heard))


@pytest.mark.parametrize(("tasks", "chunks"), [(1, 1), (CHUNK_ROWS, 1), (CHUNK_ROWS + 1, 2)])
def test_many_tasks_are_one_stream(dsn: str, tasks: int, chunks: int) -> None:
    """BEGIN, whether it may stream, COMMIT; and for each chunk the time and the stream."""
    assert traced(dsn, tasks).round_trips <= 3 + 2 * chunks


def test_a_call_rings_one_bell_at_most(dsn: str, connection: psycopg.Connection[Any]) -> None:
    """None while nobody sleeps; one, for all its chunks together, when a worker of the queue does."""
    assert traced(dsn, CHUNK_ROWS + 1).bells == 0
    assert value(connection, "SELECT pg_try_advisory_lock(hashtextextended('default', 7074617))")
    assert traced(dsn, CHUNK_ROWS + 1).bells == 1


def test_one_task_is_one_statement(dsn: str) -> None:
    """From Python on an own connection: one round trip, one transaction."""
    app = App(dsn=dsn)
    noop = app.task(name="noop")(lambda: None)
    with psycopg.connect(dsn, autocommit=True) as connection, tempfile.TemporaryFile() as trace:
        connection.pgconn.trace(trace.fileno())
        noop.using(connection=connection).enqueue()
        connection.pgconn.untrace()
        trace.seek(os.SEEK_SET)
        assert trace.read().count(b"ReadyForQuery") == 1
