"""The SQL functions: named arguments, defaults from task_types, and what each returns in each state."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.access import acting
from tests.database import Connection, rows, value
from tests.enqueue.test_unique_keys import CLAIM

TYPE = (
    "INSERT INTO pgtasks.task_types (name, queue, priority, max_attempts, timeout, retry)"
    " VALUES ('known', 'mail', 5, 3, '1 minute', '{}')"
)


def enqueue(connection: Connection, arguments: str) -> int:
    """Call pgtasks.enqueue as a producer and return the id."""
    with acting(connection, "producer"):
        return int(value(connection, f"SELECT pgtasks.enqueue({arguments})"))


def test_enqueue_takes_named_arguments(connection: Connection) -> None:
    """All of them."""
    enqueue(
        connection,
        "'work', '{\"a\": 1}', queue => 'q', priority => 3, delay => '1 hour', unique_key => 'k', max_attempts => 4,"
        " timeout => '5 s', headers => '{\"h\": 1}', on_conflict => 'ignore'",
    )
    columns = "name, payload, queue, priority, run_at > clock_timestamp() + '59 min', unique_key, max_attempts, timeout"
    assert rows(connection, f"SELECT {columns}, headers FROM pgtasks.tasks") == [
        ("work", {"a": 1}, "q", 3, True, "k", 4, timedelta(seconds=5), {"h": 1})
    ]


def test_defaults_come_from_the_task_type(connection: Connection) -> None:
    """Queue and priority; the limit and the timeout stay NULL, so that the handler's policy counts."""
    connection.execute(TYPE)
    enqueue(connection, "'known'")
    enqueue(connection, "'known', queue => 'own', priority => 0")
    enqueue(connection, "'unknown', NULL")
    connection.execute("""SELECT pgtasks.enqueue_many('[{"name": "known"}, {"name": "known", "unique_key": "k"}]')""")
    found = rows(connection, "SELECT queue, priority, max_attempts, timeout, payload FROM pgtasks.tasks ORDER BY id")
    assert found == [
        ("mail", 5, None, None, {}),
        ("own", 0, None, None, {}),
        ("default", 0, None, None, {}),
        ("mail", 5, None, None, {}),
        ("mail", 5, None, None, {}),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("NULL", "name must not be null"),
        ("''", "name_has_1_to_200_characters"),
        ("E'a\\nb'", "name_has_no_control_characters"),
        ("repeat('n', 300)", "name_has_1_to_200_characters"),
        ("'w', queue => ''", "queue_has_1_to_200_characters"),
        ("'w', delay => '-1 s'", "delay must not be negative"),
        ("'w', delay => '1 s', run_at => now()", "run_at or delay, not both"),
        ("'w', priority => 40000", "priority must be between"),
        ("'w', max_attempts => 0", "max_attempts_is_at_least_1"),
        ("'w', timeout => '-1 s'", "timeout_is_positive"),
        ("'w', unique_key => ''", "unique_key_has_1_to_500_characters"),
        ("'w', run_at => 'infinity'", "run_at_is_between_1970_and_9999"),
        ("'w', on_conflict => 'overwrite'", "on_conflict must be"),
    ],
)
def test_nonsense_is_refused_by_name(connection: Connection, arguments: str, message: str) -> None:
    """A function's message or a constraint's name says what is wrong."""
    with pytest.raises(psycopg.Error, match=message):
        enqueue(connection, arguments)
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0


def test_raise_is_a_unique_violation_in_sql(connection: Connection) -> None:
    """SQL producers have no other way to be told."""
    first = enqueue(connection, "'w', unique_key => 'k'")
    assert enqueue(connection, "'w', unique_key => 'k'") == first
    with pytest.raises(psycopg.errors.UniqueViolation, match=f"unique_key k belongs to living task {first}"):
        enqueue(connection, "'w', unique_key => 'k', on_conflict => 'raise'")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ('{"name": "w"}', "takes a JSON array of objects, got object"),
        ('[{"name": "w"}, 5]', r"tasks\[1\]: not an object"),
        ('[{"name": "w"}, {"name": "w", "prio": 1}]', r"tasks\[1\]: .* found prio"),
        ('[{"name": "w"}, {"name": "w"}, {"queue": "q"}]', r"tasks\[2\]: .*name"),
        ('[{"name": "w", "unique_key": "k"}, {"name": "w", "delay": -1}]', r"tasks\[1\]: .*delay"),
        ('[{"name": "w"}, {"name": "w", "priority": "high"}]', r"tasks\[1\]: "),
        ('[{"name": "w"}, {"name": "w", "unique_key": "k", "queue": ""}]', r"tasks\[1\]: .*queue_has_1_to_200"),
    ],
)
def test_a_bad_item_of_enqueue_many_is_named_by_its_index(connection: Connection, items: str, message: str) -> None:
    """All or nothing."""
    with acting(connection, "producer"), pytest.raises(psycopg.Error, match=message):
        connection.execute("SELECT pgtasks.enqueue_many(%s)", [items])
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0


def test_enqueue_many_tells_what_was_created(connection: Connection) -> None:
    """One row for each item, with its place."""
    living = enqueue(connection, "'w', unique_key => 'k'")
    items = '[{"name": "w", "unique_key": "k"}, {"name": "w"}, {"name": "w", "unique_key": "k2"}]'
    with acting(connection, "producer"):
        found = rows(connection, "SELECT ordinal, id, created FROM pgtasks.enqueue_many(%s) ORDER BY ordinal", items)
    assert [(ordinal, created) for ordinal, _, created in found] == [(1, False), (2, True), (3, True)]
    assert found[0][1] == living


def finished(connection: Connection, kind: str) -> int:
    """Make a task that is finished in a way, and return its id."""
    task_id = enqueue(connection, "'w', unique_key => 'k'")
    if kind == "dead":
        connection.execute(
            "WITH gone AS (DELETE FROM pgtasks.tasks RETURNING *) INSERT INTO pgtasks.dead_letters"
            " (id, created_at, run_at, attempt, priority, reason, queue, name, payload, unique_key)"
            " SELECT id, created_at, run_at, 3, priority, 'exhausted', queue, name, payload, unique_key FROM gone"
        )
    else:
        connection.execute(
            "WITH gone AS (DELETE FROM pgtasks.tasks RETURNING *) INSERT INTO pgtasks.history"
            " (id, created_at, run_at, attempt, priority, status, queue, name, payload)"
            " SELECT id, created_at, run_at, 1, priority, 'completed', queue, name, payload FROM gone"
        )
    return task_id


def call(connection: Connection, function: str, argument: object) -> Any:
    """Call a function of the contract."""
    return value(connection, f"SELECT pgtasks.{function}(%s)", argument)


def test_cancel_says_what_it_did(connection: Connection) -> None:
    """In each state, and for a task that is not there."""
    waiting = enqueue(connection, "'w'")
    assert call(connection, "cancel", waiting) == "cancelled"
    assert call(connection, "cancel", waiting) == "finished"
    assert rows(connection, "SELECT id, status FROM pgtasks.history") == [(waiting, "cancelled")]
    running = enqueue(connection, "'w'")
    connection.execute(CLAIM)
    assert call(connection, "cancel", running) == "requested"
    first = value(connection, "SELECT cancel_requested_at FROM pgtasks.tasks")
    assert call(connection, "cancel", running) == "requested"
    assert value(connection, "SELECT cancel_requested_at FROM pgtasks.tasks") == first
    assert call(connection, "cancel", finished(connection, "dead")) == "finished"
    assert call(connection, "cancel", 1) is None


def test_retry_says_what_it_did(connection: Connection) -> None:
    """A waiting task is due, a dead letter is queued with fresh attempts, the others stay as they are."""
    waiting = enqueue(connection, "'w', delay => '1 day'")
    assert call(connection, "retry", waiting) == "due"
    assert value(connection, "SELECT run_at <= clock_timestamp() FROM pgtasks.tasks")
    connection.execute(CLAIM)
    assert call(connection, "retry", waiting) == "running"
    connection.execute("DELETE FROM pgtasks.tasks")
    dead = finished(connection, "dead")
    assert call(connection, "retry", dead) == "replayed"
    assert rows(connection, "SELECT id, state, attempt, unique_key FROM pgtasks.tasks") == [(dead, "queued", 0, "k")]
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 0
    assert call(connection, "retry", dead) == "due"
    connection.execute("DELETE FROM pgtasks.tasks")
    dead = finished(connection, "dead")
    enqueue(connection, "'w', unique_key => 'k'")
    assert call(connection, "retry", dead) == "unique_key_taken"
    connection.execute("DELETE FROM pgtasks.tasks")
    assert call(connection, "retry", finished(connection, "completed")) == "finished"
    assert call(connection, "retry", 1) is None


def test_pause_and_resume_say_whether_they_changed_something(connection: Connection) -> None:
    """Also for a queue that has no task yet."""
    steps = [("pause", True), ("pause", False), ("resume", True), ("resume", False), ("pause", True)]
    assert [(step, call(connection, step, "q")) for step, _ in steps] == steps
    assert call(connection, "resume", "never seen") is False
    with pytest.raises(psycopg.errors.CheckViolation, match="name_has_1_to_200_characters"):
        call(connection, "pause", "")


def test_backlog_counts_what_is_due_and_waiting(connection: Connection) -> None:
    """Neither running nor later tasks, nor those of other queues."""
    assert call(connection, "backlog", "default") == 0
    enqueue(connection, "'w'")
    connection.execute(CLAIM)
    for arguments in ("'w'", "'w'", "'w', delay => '1 day'", "'w', queue => 'other'"):
        enqueue(connection, arguments)
    assert call(connection, "backlog", "default") == 2
