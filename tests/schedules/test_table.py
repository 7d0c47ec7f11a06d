"""The tables of 0002: what they take, what they refuse, and that the step to them only adds."""

import psycopg
import pytest

from pgtasks import schema
from pgtasks.errors import SchemaOutdated
from tests import access
from tests.database import Connection, rows, value, wait_until
from tests.schedules.helpers import add, fired, outcomes
from tests.schema.revisions import ALL, HEAD
from tests.workers import WorkerProcess


def test_a_plain_insert_is_enough(connection: Connection) -> None:
    """Name, expression and task; the rest has defaults, and the plan is the schedulers' affair."""
    rows(connection, "INSERT INTO pgtasks.schedules (name, expression, task) VALUES ('s', '@daily', 'echo')")
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, task, planned_from, next_fire, problem, problem_at)"
        " VALUES ('t', '@daily', 'echo', '2001-01-01', '2001-01-01', 'none', now())",
    )
    found = rows(
        connection,
        "SELECT timezone, payload, enabled, missed, missed_max, overlap, jitter = '0', source, next_fire, problem,"
        " problem_at, planned_from > now() - interval '1 s' FROM pgtasks.schedules",
    )
    assert found == [("UTC", {}, True, "latest", 100, "allow", True, "person", None, None, None, True)] * 2


@pytest.mark.parametrize(
    ("column", "bad", "constraint"),
    [
        ("name", "''", "name_has_1_to_200_characters"),
        ("name", "repeat('x', 201)", "name_has_1_to_200_characters"),
        ("name", "E'a\\nb'", "name_has_no_control_characters"),
        ("expression", "''", "expression_has_1_to_256_characters"),
        ("expression", "repeat('*', 257)", "expression_has_1_to_256_characters"),
        ("timezone", "''", "timezone_has_1_to_100_characters"),
        ("task", "''", "task_has_1_to_200_characters"),
        ("task", "E'a\\tb'", "task_has_no_control_characters"),
        ("payload", "jsonb_build_object('a', repeat('x', 2097153))", "payload_is_at_most_2_mib"),
        ("payload", "'[]'", "payload_is_an_object"),
        ("queue", "''", "queue_has_1_to_200_characters"),
        ("queue", "E'\\x7f'", "queue_has_no_control_characters"),
        ("missed", "'one'", "missed_is_skip_latest_or_all"),
        ("missed_max", "0", "missed_max_is_between_1_and_1000"),
        ("missed_max", "1001", "missed_max_is_between_1_and_1000"),
        ("overlap", "'queue'", "overlap_is_allow_or_skip"),
        ("jitter", "'-1 s'", "jitter_is_between_0_and_1_day"),
        ("jitter", "'2 days'", "jitter_is_between_0_and_1_day"),
        ("source", "'git'", "source_is_code_or_person"),
        ("planned_from", "'-infinity'", "planned_from_is_between_1970_and_9999"),
        ("next_fire", "'infinity'", "next_fire_is_between_1970_and_9999"),
        ("next_fire", "'-infinity'", "next_fire_is_between_1970_and_9999"),
        ("last_fire", "'infinity'", "last_fire_is_between_1970_and_9999"),
        ("created_at", "'infinity'", "created_at_is_between_1970_and_9999"),
    ],
)
def test_what_is_refused(connection: Connection, column: str, bad: str, constraint: str) -> None:
    """By a constraint whose name says why; times that Python cannot read would stop every scheduler."""
    add(connection, "s")
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        connection.execute(f"UPDATE pgtasks.schedules SET {column} = {bad}".encode())


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ("'s', 'infinity', 1, 'fired'", "fire_time_is_between_1970_and_9999"),
        ("'s', now(), 1, 'missed'", "fired_means_a_task"),
        ("'s', now(), NULL, 'fired'", "fired_means_a_task"),
        ("'s', now(), NULL, 'late'", "outcome_is_fired_skipped_overlap_or_missed"),
    ],
)
def test_what_a_fire_cannot_be(connection: Connection, values: str, constraint: str) -> None:
    """A fire without a task, or a task of a slot that did not fire."""
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        connection.execute(
            f"INSERT INTO pgtasks.schedule_fires (schedule, fire_time, task_id, outcome) VALUES ({values})".encode()
        )


def test_the_view_counts_the_last_day(connection: Connection) -> None:
    """What fired, what was missed and skipped, and how late the last fire was."""
    add(connection, "s")
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, fired_at, task_id, outcome) VALUES"
        " ('s', now() - interval '2 days', now(), 1, 'fired'),"
        " ('s', now() - interval '3 min', now() - interval '2 min', 2, 'fired'),"
        " ('s', now() - interval '2 min', now() - interval '90 s', 3, 'fired'),"
        " ('s', now() - interval '1 min', now(), NULL, 'missed'),"
        " ('s', now() - interval '59 s', now(), NULL, 'skipped_overlap'),"
        " ('t', now(), now(), 9, 'fired')",
    )
    # A backfill of a later slot leaves `last_fire` alone, and is not the last fire's lateness.
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, fired_at, task_id, outcome, backfilled)"
        " VALUES ('s', now() - interval '80 s', now(), 7, 'fired', true)",
    )
    rows(
        connection,
        "UPDATE pgtasks.schedules SET next_fire = now() - interval '1 h', last_fire ="
        " (SELECT fire_time FROM pgtasks.schedule_fires WHERE task_id = 3)",
    )
    found = rows(
        connection,
        "SELECT fired, missed_fires, skipped, lateness = '30 s', overdue BETWEEN '1 h' AND '61 min'"
        " FROM pgtasks.schedule_stats",
    )
    assert found == [(3, 1, 1, True, True)]


def test_the_schema_before_it_is_outdated(empty_dsn: str) -> None:
    """The message says what is there, what is needed, and the command."""
    schema.migrate(empty_dsn, target="0001")
    with pytest.raises(SchemaOutdated) as refused:
        schema.require(schema.check(empty_dsn))
    assert "0001" in str(refused.value)
    assert HEAD in str(refused.value)
    assert "pgtasks migrate" in str(refused.value)
    assert schema.migrate(empty_dsn).applied == ALL[1:]
    schema.require(schema.check(empty_dsn))


@pytest.mark.slow
def test_the_step_only_adds(empty_dsn: str) -> None:
    """Up and down again beside enqueues and an open transaction: none of the locks of others is needed."""
    schema.migrate(empty_dsn, target="0002")
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        for _ in range(2):
            with psycopg.connect(empty_dsn) as running:
                # Somebody's open transaction on the tables of 0001 keeps neither step from being taken.
                running.execute("SELECT count(*) FROM pgtasks.tasks, pgtasks.history")
                rows(running, "SELECT pgtasks.enqueue('echo')")
                schema.downgrade(empty_dsn, target="0001")
                rows(connection, "SELECT pgtasks.enqueue('echo') FROM generate_series(1, 5)")
                schema.migrate(empty_dsn, target="0002")
                running.rollback()
        schema.migrate(empty_dsn)
        access.grant_all(empty_dsn)
        add(connection, "s")
        with WorkerProcess("tests.apps.basic:app", empty_dsn, "--concurrency=2") as process:
            wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.history") >= 10, hint=process.output)
            wait_until(lambda: fired(connection, "s"), hint=process.output)
        assert set(outcomes(connection, "s")) <= {"fired", "missed"}
