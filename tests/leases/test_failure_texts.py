"""What a failure says reaches the server as it is, whatever is in it."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pytest

from pgtasks.outcome import Failure, RetryIn
from pgtasks.store import statements
from tests.database import value

pytestmark = pytest.mark.pg

TEXTS = ["plain", "", "NULL", 'a "quoted" one', "back\\slash", '\\"', "{a,b}", "two\nlines,\ttab", "é ☃ 🙂", " blanks "]


def test_texts_that_mean_something_in_an_array_arrive(connection: psycopg.Connection[Any]) -> None:
    """Quotes, backslashes, braces, commas and blanks, in each of the columns."""
    failures = [Failure(text, text, text) for text in TEXTS]
    tasks = [(number, 1) for number in range(len(TEXTS))]
    params = statements.retry(uuid.uuid4(), tasks, [RetryIn(0.0, failure) for failure in failures], []).params
    for column in ("error_classes", "errors", "tracebacks"):
        assert value(connection, "SELECT %s::text[]", params[column]) == TEXTS
    assert value(connection, "SELECT %s::text[]", params["outcomes"]) == ["failed"] * len(TEXTS)
