"""What plain SQL may not put into the queue is refused, by a constraint whose name says why."""

import re

import psycopg
import pytest

from tests.database import Connection, rows, value

REFUSED = [
    ("queue", "''", "queue_has_1_to_200_characters"),
    ("queue", "repeat('q', 201)", "queue_has_1_to_200_characters"),
    ("queue", r"E'a\nb'", "queue_has_no_control_characters"),
    ("queue", r"E'a\x7f'", "queue_has_no_control_characters"),
    ("queue", "NULL", 'null value in column "queue"'),
    ("name", "''", "name_has_1_to_200_characters"),
    ("name", "repeat('n', 300)", "name_has_1_to_200_characters"),
    ("name", r"E'a\tb'", "name_has_no_control_characters"),
    ("name", r"E'\x1b[31mred'", "name_has_no_control_characters"),
    ("name", "NULL", 'null value in column "name"'),
    ("payload", "NULL", 'null value in column "payload"'),
    ("payload", "'{'", "invalid input syntax for type json"),
    ("payload", r"""'"\u0000"'""", "unsupported Unicode escape sequence"),
    ("payload", "jsonb_build_object('a', repeat('x', 2097152))", "payload_is_at_most_2_mib"),
    ("payload", "'null'", "payload_is_an_object"),
    ("payload", "'[]'", "payload_is_an_object"),
    ("payload", "'\"s\"'", "payload_is_an_object"),
    ("payload", "'1'", "payload_is_an_object"),
    ("headers", "to_jsonb(repeat('x', 65536))", "headers_are_at_most_64_kib"),
    ("priority", "32768", "smallint out of range"),
    ("priority", "-2147483648", "smallint out of range"),
    ("run_at", "NULL", 'null value in column "run_at"'),
    ("run_at", "'infinity'", "run_at_is_between_1970_and_9999"),
    ("run_at", "'-infinity'", "run_at_is_between_1970_and_9999"),
    ("run_at", "'1969-12-31T23:59:59Z'", "run_at_is_between_1970_and_9999"),
    ("run_at", "'9999-12-31T00:00:00Z'", "run_at_is_between_1970_and_9999"),
    ("created_at", "'infinity'", "created_at_is_between_1970_and_9999"),
    ("attempt", "-1", "attempt_is_not_negative"),
    ("max_attempts", "0", "max_attempts_is_at_least_1"),
    ("timeout", "interval '0'", "timeout_is_positive_and_at_most_1_year"),
    ("timeout", "interval '-1 s'", "timeout_is_positive_and_at_most_1_year"),
    ("timeout", "interval '367 days'", "timeout_is_positive_and_at_most_1_year"),
    ("unique_key", "''", "unique_key_has_1_to_500_characters"),
    ("unique_key", "repeat('k', 501)", "unique_key_has_1_to_500_characters"),
    ("state", "'running'", "running_means_leased"),
    ("state", "'done'", "state_is_queued_or_running"),
    ("state", "NULL", 'null value in column "state"'),
    ("lease_id", "1", "running_means_leased"),
    ("claimed_at", "now()", "running_means_leased"),
    ("id", "1", "cannot insert a non-DEFAULT value"),
]
TAKEN = [
    ("payload", '\'{"self": 1, "class": 2, "": 3}\''),
    ("payload", "jsonb_build_object('a', repeat('x', 2097000))"),
    ("name", "repeat('n', 200)"),
    ("name", "'it''s \"quoted\" ünïcode 🚀'"),
    ("queue", "repeat('ä', 200)"),
    ("priority", "-32768"),
    ("run_at", "'1970-01-01T00:00:00Z'"),
    ("timeout", "interval '366 days'"),
    ("unique_key", "repeat('ü', 500)"),
]


def insert(connection: Connection, column: str, expression: str) -> None:
    """Insert a task with one column's value as SQL."""
    columns = {"name": "'add'"} | {column: expression}
    names, values = ", ".join(columns), ", ".join(columns.values())
    rows(connection, f"INSERT INTO pgtasks.tasks ({names}) VALUES ({values})")


@pytest.mark.parametrize(("column", "expression", "message"), REFUSED)
def test_a_bad_row_is_refused(connection: Connection, column: str, expression: str, message: str) -> None:
    """The message is one that a person understands; nothing is inserted."""
    with pytest.raises(psycopg.Error, match=re.escape(message)):
        insert(connection, column, expression)
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0


@pytest.mark.parametrize(("column", "expression"), TAKEN)
def test_an_odd_row_is_taken(connection: Connection, column: str, expression: str) -> None:
    """What JSON and text can hold is not refused; a handler that cannot use it fails its task."""
    insert(connection, column, expression)
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 1


def test_a_second_living_task_with_the_same_key_is_refused(connection: Connection) -> None:
    """One that has ended does not count."""
    insert(connection, "unique_key", "'k'")
    with pytest.raises(psycopg.errors.UniqueViolation, match="tasks_unique_key"):
        insert(connection, "unique_key", "'k'")
    rows(connection, "SELECT pgtasks.cancel(id) FROM pgtasks.tasks")
    insert(connection, "unique_key", "'k'")


def test_every_generated_number_is_a_bigint(connection: Connection) -> None:
    """Two thousand million tasks are a year of 70 per second."""
    query = "SELECT seqrelid::regclass::text, seqtypid::regtype::text FROM pg_sequence"
    sequences = rows(connection, query)
    assert dict(sequences) == {"pgtasks.tasks_id_seq": "bigint", "pgtasks.leases_id_seq": "bigint"}


def test_every_column_that_holds_an_id_is_a_bigint(connection: Connection) -> None:
    """In tables, views and the arguments of functions."""
    columns = rows(
        connection,
        "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'pgtasks'"
        " AND (column_name IN ('id', 'task_id', 'lease_id') OR column_name LIKE '%%\\_ids') "
        " AND data_type NOT IN ('bigint', 'uuid', 'ARRAY')",
    )
    assert columns == []
    assert value(connection, "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attname = 'task_ids'") == (
        "bigint[]"
    )
    arguments = rows(
        connection,
        "SELECT p.proname FROM pg_proc p, unnest(p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[])) "
        "a (name, type) WHERE p.pronamespace = 'pgtasks'::regnamespace"
        " AND a.name = 'id' AND a.type <> 'bigint'::regtype",
    )
    assert arguments == []
