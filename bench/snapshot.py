"""An old snapshot, which keeps vacuum from removing whatever ends after it was taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg


@contextmanager
def held(dsn: str) -> Iterator[None]:
    """Keep a transaction in REPEATABLE READ open in this database, and make sure that it was kept to the end."""
    with psycopg.connect(dsn, application_name="bench") as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        before = holder.execute("SELECT pg_current_snapshot()::text").fetchone()
        yield
        assert holder.execute("SELECT pg_current_snapshot()::text").fetchone() == before, "the snapshot was lost"
