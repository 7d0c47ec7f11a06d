"""What a failure says reaches the server as it is, whatever is in it."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pytest

from pgtasks.outcome import Dead, Failure, RetryIn
from pgtasks.store import statements
from tests.database import rows, value
from tests.leases import steps

pytestmark = pytest.mark.pg

TEXTS = ["plain", "", "NULL", 'a "quoted" one', "back\\slash", '\\"', "{a,b}", "two\nlines,\ttab", "é ☃ 🙂", " blanks "]


def test_texts_that_mean_something_in_an_array_arrive(connection: psycopg.Connection[Any]) -> None:
    """Quotes, backslashes, braces, commas and blanks, in each of the columns."""
    usual = Failure("usual", "usual", "usual")
    failures = [usual, *[Failure(text, text, text) for text in TEXTS], usual]
    tasks = [(number, 1) for number in range(len(failures))]
    params = statements.retry(uuid.uuid4(), tasks, [RetryIn(0.0, failure) for failure in failures], []).params
    for column in ("error_classes", "errors", "tracebacks"):
        assert value(connection, "SELECT %s::text[]", params[column]) == [None, *TEXTS, None]
    assert value(connection, "SELECT %s::text[]", params["outcomes"]) == [None, *["failed"] * len(TEXTS), None]


@pytest.mark.parametrize("kind", ["retry", "bury"])
def test_what_is_alike_is_sent_once_and_written_for_each(connection: psycopg.Connection[Any], kind: str) -> None:
    """Beside others in the same batch."""
    away, other = Failure("Away", "it is away", "Traceback ☃", "timed_out"), Failure("Other", "", "")
    me, failures = uuid.uuid4(), [away, other, away, away]
    steps.enqueue(connection, len(failures))
    ended = sorted((task.id, task.lease_id) for task in steps.claim(connection, me, len(failures)))
    statement = (
        statements.retry(me, ended, [RetryIn(0.0, failure) for failure in failures], [])
        if kind == "retry"
        else statements.bury(me, ended, [Dead("permanent", failure) for failure in failures], [])
    )
    assert str(statement.params).count(away.traceback) == 1
    assert steps.fetch(connection, statement).ids is None
    columns = "outcome, error_class, error, traceback"
    expected = [(one.outcome, one.error_class, one.message, one.traceback) for one in failures]
    assert rows(connection, f"SELECT {columns} FROM pgtasks.attempts ORDER BY task_id") == expected
    if kind == "bury":
        read = "SELECT error_class, error, traceback FROM pgtasks.dead_letters ORDER BY id"
        assert rows(connection, read) == [one[1:] for one in expected]
