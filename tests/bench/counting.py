"""What the server counted: transactions, WAL, and rows written by table."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

from tests.database import rows, value

TABLES = ("tasks", "leases", "history", "attempts", "dead_letters")


class Rows(NamedTuple):
    """Rows that were written in one table, its partitions together."""

    inserted: int
    updated: int
    hot: int
    deleted: int


class Cost(NamedTuple):
    """What was done to the server."""

    commits: int
    rollbacks: int
    wal_bytes: int
    tables: dict[str, Rows]


def read(connection: psycopg.Connection[Any]) -> Cost:
    """Read the server's counters, those of this session included."""
    rows(connection, "SELECT pg_stat_force_next_flush()")
    ((commits, rollbacks),) = rows(
        connection, "SELECT xact_commit, xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    )
    written = {
        table: Rows(
            *rows(
                connection,
                "SELECT coalesce(sum(n_tup_ins), 0)::bigint, coalesce(sum(n_tup_upd), 0)::bigint,"
                " coalesce(sum(n_tup_hot_upd), 0)::bigint, coalesce(sum(n_tup_del), 0)::bigint"
                " FROM pg_stat_all_tables WHERE schemaname = 'pgtasks' AND relname ~ %s",
                rf"^{table}(_\d+|_default)?$",
            )[0]
        )
        for table in TABLES
    }
    return Cost(commits, rollbacks, wal_bytes(connection), written)


def wal_bytes(connection: psycopg.Connection[Any]) -> int:
    """Read how much WAL there has been so far; unlike the other counters this one is never late."""
    return int(value(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"))


def difference(before: Cost, after: Cost) -> Cost:
    """Give what was done between two readings."""
    return Cost(
        after.commits - before.commits,
        after.rollbacks - before.rollbacks,
        after.wal_bytes - before.wal_bytes,
        {
            table: Rows(*(new - old for old, new in zip(before.tables[table], after.tables[table], strict=True)))
            for table in TABLES
        },
    )


def no_sessions(connection: psycopg.Connection[Any]) -> bool:
    """Say whether all sessions of workers have ended, after which their counts are complete."""
    return not value(
        connection,
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name LIKE 'pgtasks/%' AND datname = current_database()",
    )
