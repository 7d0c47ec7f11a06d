"""`pgtasks tasks`: lists are bounded and newest first; show shows everything; cancel and retry say what happened."""

import json
from typing import Any

import psycopg
import pytest

from pgtasks.store import listing
from tests.cli.conftest import Run
from tests.database import Connection, rows, value

pytestmark = pytest.mark.pg


def add_history(connection: Connection, count: int, *, first_id: int = 1, name: str = "done") -> None:
    """Insert completed tasks with ids from first_id on."""
    connection.execute(
        "INSERT INTO pgtasks.history (id, created_at, run_at, started_at, attempt, priority, status, queue, name,"
        " payload, result) SELECT %s + g, now(), now(), now(), 1, 0, 'completed', 'default', %s, '{\"a\": 1}', '2'"
        " FROM generate_series(0, %s) g",
        (first_id, name, count - 1),
    )


def add_dead(connection: Connection, id: int, **columns: Any) -> None:
    """Insert one dead letter."""
    values = {
        "queue": "default", "name": "add", "reason": "exhausted", "payload": "{}", "error": "boom",
        "error_class": "ValueError", "traceback": "Traceback\n  line\nValueError: boom", "unique_key": None,
    } | columns  # fmt: skip
    names = psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, values))
    connection.execute(
        psycopg.sql.SQL(
            "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, attempt, priority, {})"
            " VALUES (%s, now(), now(), 3, 0, {})"
        ).format(names, psycopg.sql.SQL(", ").join([psycopg.sql.Placeholder()] * len(values))),
        (id, *values.values()),
    )


def test_the_list_has_every_status_newest_first(pgtasks: Run, connection: Connection) -> None:
    """From all three tables, and without payloads."""
    add_history(connection, 2)
    add_dead(connection, 3)
    connection.execute(
        "INSERT INTO pgtasks.tasks (id, name, run_at, attempt) OVERRIDING SYSTEM VALUE VALUES"
        " (4, 'a', now(), 0), (5, 'a', now() + interval '1 hour', 0), (6, 'a', now(), 1)"
    )
    listed = pgtasks("tasks", "list", "--json").json
    assert [(task["id"], task["status"]) for task in listed["tasks"]] == [
        (6, "retrying"), (5, "scheduled"), (4, "queued"), (3, "dead"), (2, "completed"), (1, "completed"),
    ]  # fmt: skip
    assert listed["next_before"] is None
    assert "payload" not in listed["tasks"][0]
    for status in ("retrying", "scheduled", "queued", "dead"):
        assert len(pgtasks("tasks", "list", "--status", status, "--json").json["tasks"]) == 1
    assert [task["id"] for task in pgtasks("tasks", "list", "--status", "completed", "--json").json["tasks"]] == [2, 1]


def test_pages_continue_where_the_last_one_ended(pgtasks: Run, connection: Connection) -> None:
    """With the id that the page before gave."""
    add_history(connection, 5)
    first = pgtasks("tasks", "list", "--limit", "2", "--json").json
    assert [task["id"] for task in first["tasks"]] == [5, 4]
    second = pgtasks("tasks", "list", "--limit", "2", "--before", str(first["next_before"]), "--json").json
    assert [task["id"] for task in second["tasks"]] == [3, 2]


def test_filters_combine(pgtasks: Run, connection: Connection) -> None:
    """Queue and name, and nothing found is no error where both exist."""
    add_history(connection, 2)
    connection.execute("INSERT INTO pgtasks.tasks (name, queue) VALUES ('done', 'other'), ('x', 'other')")
    found = pgtasks("tasks", "list", "--name", "done", "--queue", "other", "--json").json["tasks"]
    assert [(task["name"], task["queue"]) for task in found] == [("done", "other")]
    none = pgtasks("tasks", "list", "--queue", "other", "--status", "dead")
    assert (none.code, none.out, none.err) == (0, "", "no tasks fit\n")


def test_unknown_queues_and_names_are_3(pgtasks: Run, connection: Connection) -> None:
    """With what was probably meant."""
    connection.execute("INSERT INTO pgtasks.tasks (name, queue) VALUES ('send_mail', 'mails')")
    connection.execute(
        "INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry) VALUES ('resize', 'q', 1, '{}')"
    )
    queue = pgtasks("tasks", "list", "--queue", "mial")
    assert queue.code == 3
    assert "did you mean 'mails'?" in queue.err
    name = pgtasks("tasks", "list", "--name", "resise")
    assert name.code == 3
    assert "did you mean 'resize'?" in name.err
    assert pgtasks("tasks", "list", "--name", "send_mail").code == 0


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_lists_read_a_bounded_part_of_big_tables(fresh_database: str) -> None:
    """Every step walks an index, and none reads more rows than the filters may look at."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        add_history(connection, 200_000)
        connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 'a' FROM generate_series(1, 200000)")
        connection.execute("ANALYZE")
        for filters in ({}, {"name": "rare"}, {"status": "completed", "name": "rare"}):
            statement = listing.tasks(before=2**62, limit=50, **filters)
            plan = value(connection, "EXPLAIN (ANALYZE, FORMAT JSON) " + _inlined(connection, statement))
            nodes = list(_nodes(plan[0]["Plan"]))
            scans = [node for node in nodes if "Scan" in node["Node Type"] and node.get("Relation Name") != "tasks"]
            assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Actual Rows"] > 0]
            most = listing.SCAN_ROWS if filters else 50
            assert all(node["Actual Rows"] <= most for node in scans)


def _inlined(connection: Connection, statement: Any) -> str:
    return psycopg.ClientCursor(connection).mogrify(statement.sql, statement.params)


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def test_show_has_everything(pgtasks: Run, connection: Connection) -> None:
    """Payload, result, attempts with their errors, and the handler's own limits."""
    add_history(connection, 1)
    connection.execute(
        "INSERT INTO pgtasks.attempts (task_id, attempt, lease_id, outcome, error_class, error, traceback, queue, name)"
        " VALUES (1, 1, 1, 'failed', 'KeyError', 'x', E'Traceback\\nKeyError: x', 'default', 'done')"
    )
    connection.execute(
        "INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry) VALUES ('done', 'default', 4, '{}')"
    )
    shown = pgtasks("tasks", "show", "1", "--json").json
    assert (shown["payload"], shown["result"], shown["status"]) == ({"a": 1}, 2, "completed")
    assert shown["handler_max_attempts"] == 4
    (attempt,) = shown["attempts"]
    assert (attempt["outcome"], attempt["error_class"], attempt["error"]) == ("failed", "KeyError", "x")
    text = pgtasks("tasks", "show", "1").out
    for part in ("done", "completed", '{"a": 1}', "1 of 4", "attempt 1: failed", "KeyError: x"):
        assert part in text


def test_a_traceback_is_shown_once(pgtasks: Run, connection: Connection) -> None:
    """Later attempts with the same one say so, also first ones after a replay; JSON has every one."""
    add_history(connection, 1)
    for lease, (attempt, line) in enumerate([(1, 4), (2, 4), (3, 5), (1, 4)], 1):
        connection.execute(
            "INSERT INTO pgtasks.attempts (task_id, attempt, lease_id, outcome, error_class, error, traceback, queue,"
            " name) VALUES (1, %s, %s, 'failed', 'KeyError', 'x', %s, 'default', 'done')",
            (attempt, lease, f'Traceback\n  File "a.py", line {line}\nKeyError: x'),
        )
    text = pgtasks("tasks", "show", "1").out
    assert [text.count(part) for part in ("line 4", "line 5", "as in attempt 1")] == [1, 1, 2]
    assert len([one for one in pgtasks("tasks", "show", "1", "--json").json["attempts"] if one["traceback"]]) == 4


def test_json_that_python_cannot_read_is_shown(pgtasks: Run, connection: Connection) -> None:
    """5,000 digits, and a number beyond floats."""
    digits = "7" * 5000
    connection.execute(
        "INSERT INTO pgtasks.tasks (id, name, payload) OVERRIDING SYSTEM VALUE VALUES (9, 'a', %s)",
        ('{"n": ' + digits + ', "x": 1e400}',),
    )
    ran = pgtasks("tasks", "show", "9", "--json")
    assert json.loads(ran.out, parse_int=str)["payload"]["n"] == digits
    assert digits in pgtasks("tasks", "show", "9").out


def test_cancel_says_what_happened_to_each(pgtasks: Run, connection: Connection) -> None:
    """And exits with 3 when one does not exist."""
    add_history(connection, 1)
    connection.execute("INSERT INTO pgtasks.tasks (id, name) OVERRIDING SYSTEM VALUE VALUES (2, 'a'), (3, 'a')")
    connection.execute("UPDATE pgtasks.tasks SET state = 'running', lease_id = 1, claimed_at = now() WHERE id = 3")
    ran = pgtasks("tasks", "cancel", "1", "2", "3", "2")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "task 1: has finished already; nothing to cancel",
        "task 2: cancelled",
        "task 3: is running; its worker is told to stop it",
    ]
    missing = pgtasks("tasks", "cancel", "3", "77", "--json")
    assert missing.code == 3
    assert missing.json == {"tasks": [{"id": 3, "result": "requested"}, {"id": 77, "result": "not_found"}]}


def test_retry_says_what_happened_to_each(pgtasks: Run, connection: Connection) -> None:
    """Waiting, running, finished, dead, and one whose key a living task has."""
    add_history(connection, 1)
    connection.execute(
        "INSERT INTO pgtasks.tasks (id, name, run_at, unique_key) OVERRIDING SYSTEM VALUE"
        " VALUES (2, 'a', now() + interval '1 day', 'k')"
    )
    add_dead(connection, 3)
    add_dead(connection, 4, unique_key="k")
    ran = pgtasks("tasks", "retry", "1", "2", "3", "4", "--json")
    assert [task["result"] for task in ran.json["tasks"]] == ["finished", "due", "replayed", "unique_key_taken"]
    assert ran.code == 0
    assert rows(connection, "SELECT id, attempt, run_at <= now() FROM pgtasks.tasks ORDER BY id") == [
        (2, 0, True),
        (3, 0, True),
    ]
    assert pgtasks("tasks", "retry", "5").code == 3
