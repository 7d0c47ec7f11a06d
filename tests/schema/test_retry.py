"""`pgtasks.retry`: an overdue task keeps its place, and a key that is taken meanwhile keeps the dead letter."""

import threading
import time
from typing import Any

import psycopg

from tests.database import Connection, rows, value, wait_until

BURIED = (
    "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, attempt, priority, reason, queue, name, payload,"
    " unique_key, finished_at, error)"
    " VALUES (7, now(), now(), 1, 0, 'exhausted', 'default', 't', '{}', 'key', now(), 'no')"
)


def test_an_overdue_task_keeps_its_place(connection: Connection) -> None:
    """It does not go to the end of those that are due; one of the future becomes due now."""
    first, second = (
        value(
            connection, "INSERT INTO pgtasks.tasks (name, run_at) VALUES ('t', now() - %s::interval) RETURNING id", ago
        )
        for ago in ("2 min", "1 min")
    )
    future = value(connection, "INSERT INTO pgtasks.tasks (name, run_at) VALUES ('t', '2100-01-01') RETURNING id")
    assert [value(connection, "SELECT pgtasks.retry(%s)", one) for one in (first, future)] == ["due", "due"]
    order = rows(connection, "SELECT id FROM pgtasks.tasks WHERE run_at <= clock_timestamp() ORDER BY run_at")
    assert order == [(first,), (second,), (future,)]


def _replay(dsn: str, answers: list[Any]) -> None:
    with psycopg.connect(dsn, autocommit=True) as other:
        try:
            answers.append(value(other, "SELECT pgtasks.retry(7)"))
        except psycopg.Error as error:
            answers.append(error.sqlstate)


def test_a_replay_that_races_a_new_task_with_its_key_says_so(connection: Connection, dsn: str) -> None:
    """The new task was not committed yet as the replay began: it waits, and answers as if it had been."""
    connection.execute(BURIED)
    answers: list[Any] = []
    replaying = threading.Thread(target=_replay, args=(dsn, answers))
    with connection.transaction():
        connection.execute("INSERT INTO pgtasks.tasks (name, unique_key) VALUES ('t', 'key')")
        replaying.start()
        wait_until(lambda: value(connection, "SELECT count(*) FROM pg_locks WHERE NOT granted"))
        time.sleep(0.05)  # it is in the insert by now
    replaying.join(10)
    assert answers == ["unique_key_taken"]
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 1
    connection.execute("DELETE FROM pgtasks.tasks")
    assert value(connection, "SELECT pgtasks.retry(7)") == "replayed"
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 0


def test_two_replays_at_once_make_one_task(connection: Connection, dsn: str) -> None:
    """The second finds it alive."""
    connection.execute(BURIED)
    answers: list[Any] = []
    replaying = threading.Thread(target=_replay, args=(dsn, answers))
    with connection.transaction():
        assert value(connection, "SELECT pgtasks.retry(7)") == "replayed"
        replaying.start()
        wait_until(lambda: value(connection, "SELECT count(*) FROM pg_locks WHERE NOT granted"))
    replaying.join(10)
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 1
    assert answers == ["due"]
