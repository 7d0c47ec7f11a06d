"""One look at the database: what it sees, and how little it reads."""

import psycopg
import pytest

from pgtasks.store import watching
from pgtasks.store.session import connect
from pgtasks.store.watching import read_look
from tests.database import Connection, rows, value

pytestmark = pytest.mark.pg


def running(connection: Connection, queue: str, *names: str, worker: str | None = "w:1") -> list[int]:
    """Insert running tasks with one lease, and return their ids; the last one's lease is not its own any more."""
    worker_id = "00000000-0000-0000-0000-000000000007"
    if worker is not None:
        connection.execute(
            "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)"
            " VALUES (%s, %s, ARRAY[%s], '{a}', 8, 30, '1') ON CONFLICT DO NOTHING",
            (worker_id, worker, queue),
        )
    ids = [
        int(value(connection, "INSERT INTO pgtasks.tasks (queue, name) VALUES (%s, %s) RETURNING id", queue, name))
        for name in names
    ]
    lease = value(
        connection,
        "INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids) VALUES (%s, now() + interval '1 hour', %s)"
        " RETURNING id",
        worker_id,
        ids,
    )
    connection.execute(
        "UPDATE pgtasks.tasks SET state = 'running', attempt = 1, lease_id = %s, claimed_at = clock_timestamp()"
        " WHERE id = ANY(%s)",
        (lease, ids[:-1]),
    )
    return ids


def test_a_look_sees_what_runs_and_what_ended(dsn: str, connection: Connection) -> None:
    """Running tasks through their leases; completions and failures of the window; no payload is needed for it."""
    first, second, _ = running(connection, "mails", "a", "b", "not-held")
    connection.execute("SELECT pgtasks.cancel(%s)", (second,))
    connection.execute(
        "INSERT INTO pgtasks.history (id, created_at, run_at, attempt, priority, status, queue, name, payload,"
        " finished_at) SELECT g, now(), now(), 1, 0, 'completed', 'mails', 'a', '{}', now() - interval '1 s'"
        " FROM generate_series(1, 30) g"
    )
    connection.execute(
        "INSERT INTO pgtasks.attempts (task_id, attempt, lease_id, outcome, error_class, error, queue, name,"
        " finished_at) SELECT g, 1, 1, 'failed', 'ValueError', repeat('x', 1000), 'mails', 'a',"
        " now() - g * interval '20 s' FROM generate_series(0, 3) g"
    )
    with connect(dsn, "cli") as ours:
        look = read_look(ours, None)
        again = read_look(ours, look.until)
    assert [(task.id, task.name, task.worker, task.is_cancelled) for task in look.running] == [
        (first, "a", "w:1", False),
        (second, "b", "w:1", True),
    ]
    assert [(row.queue, row.ended) for row in look.completed] == [("mails", 30)]
    assert [failure.task_id for failure in look.failures] == [0, 1, 2]
    assert look.failures[0].error == "x" * 300
    assert (look.until - look.since, look.now > look.until) == (watching.FIRST, True)
    (mails,) = [queue for queue in look.queues if queue.queue == "mails"]
    assert (mails.running, mails.queued) == (2, 1)
    assert [worker.name for worker in look.workers] == ["w:1"]
    assert again.since == look.until
    assert again.completed == []


def test_no_look_reaches_back_further_than_a_minute(dsn: str, connection: Connection) -> None:
    """After a long freeze the time in between is left out."""
    with connect(dsn, "cli") as ours:
        long_ago = value(connection, "SELECT now() - interval '1 hour'")
        look = read_look(ours, long_ago)
    assert look.until - look.since < watching.BACK_MAX


def test_what_is_listed_is_bounded(dsn: str, connection: Connection) -> None:
    """The oldest running tasks and the newest failures."""
    ids = running(connection, "mails", *(f"n{n}" for n in range(20)))
    running(connection, "mails", *(f"m{n}" for n in range(20)), worker=None)
    with psycopg.connect(dsn, autocommit=True) as plain:
        statement = watching.running(scan=10, limit=5)
        found = rows(plain, statement.sql.replace("%(scan)s", "10").replace("%(limit)s", "5"))
    assert [row[0] for row in found] == ids[:5]
