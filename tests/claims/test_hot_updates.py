"""A claim is a heap-only update: it touches no index."""

import psycopg

from tests.claims.helpers import rescan
from tests.database import Connection, value, wait_until

COUNTED = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tasks'"


def test_nearly_all_claims_are_heap_only(fresh_database: str) -> None:
    """Also for rows of ordinary width in a table that has just been filled."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO pgtasks.tasks (name, payload) SELECT 't',"
            " jsonb_build_object('n', n, 'text', repeat('x', n % 200))"
            " FROM generate_series(1, 20000) n"
        )
        while rescan(connection, 500):
            pass
        _flush(connection)
        wait_until(lambda: _counts(connection)[0] >= 20_000, hint=lambda: _counts(connection))
        updated, heap_only = _counts(connection)
        assert heap_only / updated >= 0.95


def _flush(connection: Connection) -> None:
    connection.execute("SELECT pg_stat_force_next_flush()")
    value(connection, "SELECT 1")


def _counts(connection: Connection) -> tuple[int, int]:
    ((updated, heap_only),) = connection.execute(COUNTED).fetchall()
    return updated, heap_only
