"""Days of history that lie in the past."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest

from tests.database import Connection, rows, value

AddDay = Callable[..., str]


@pytest.fixture
def owner(fresh_database: str) -> Iterator[Connection]:
    """A session on a database that no other test sees."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def add_day(owner: Connection) -> AddDay:
    """Make the partition of a day so many days ago, with rows in it; give its name."""

    def add(days_ago: int, count: int = 10, parent: str = "history") -> str:
        day = value(owner, "SELECT (now() AT TIME ZONE 'UTC')::date") - timedelta(days=days_ago)
        name = f"{parent}_{day:%Y%m%d}"
        owner.execute(
            f"CREATE TABLE pgtasks.{name} PARTITION OF pgtasks.{parent}"
            f" FOR VALUES FROM ('{day} 00:00Z') TO ('{day + timedelta(days=1)} 00:00Z')".encode()
        )
        fill(owner, parent, f"'{day} 12:00Z'::timestamptz", count)
        return name

    return add


def fill(connection: Connection, parent: str, finished_at: str, count: int) -> None:
    """Insert so many finished tasks, or failed attempts, of one moment."""
    columns, values = (
        ("id, created_at, run_at, attempt, priority, status, queue, name, payload",
         "g, now(), now(), 1, 0, 'completed', 'default', 'add', '{}'")
        if parent == "history"
        else ("task_id, attempt, lease_id, outcome, queue, name", "g, 1, 1, 'failed', 'default', 'add'")
    )  # fmt: skip
    connection.execute(
        f"INSERT INTO pgtasks.{parent} ({columns}, finished_at) SELECT {values}, {finished_at}"
        f" FROM generate_series(1, {count}) g".encode()
    )


def days(connection: Connection) -> set[str]:
    """Return the names of the day partitions of the past."""
    found = rows(
        connection,
        "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent IN ('pgtasks.history'::regclass, 'pgtasks.attempts'::regclass)"
        " AND c.relname ~ '_[0-9]{8}$' AND right(c.relname, 8) < to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')",
    )
    return {name for (name,) in found}
