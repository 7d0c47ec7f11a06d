"""What migrations need from PostgreSQL: connections, the lock of the only migrator, and blockers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from pgtasks.store import session
from pgtasks.store.session import Statement, SyncConnection
from pgtasks.store.sql_files import sql

# What passes when whoever is in the way has gone: a lock not available, a deadlock.
_IN_THE_WAY = ("55P03", "40P01")


class LockAttempt(NamedTuple):
    """Whether this is the only migrator now; if not, the process id of the one that is."""

    taken: bool
    holder: int | None


class Blocker(NamedTuple):
    """A session that a migration waits for."""

    pid: int
    application: str
    state: str
    open_s: float
    query: str


def connect_for_alembic(dsn: str, pooler: str) -> SyncConnection:
    """Open a connection whose transactions SQLAlchemy begins and ends; raises DatabaseUnavailable."""
    connection = session.connect(dsn, "migrate", pooler=pooler)
    connection.autocommit = False
    connection.prepare_threshold = None
    return connection


def backend_pid(connection: SyncConnection) -> int:
    """Give the process id of a connection's server side."""
    return connection.info.backend_pid


@contextmanager
def try_lock(connection: SyncConnection) -> Iterator[LockAttempt]:
    """Try to become the only migrator, for as long as the block runs."""
    with session.translated(), connection.transaction():
        yield session.fetch_all(connection, Statement(sql("schema_lock"), {}, LockAttempt))[0]


def blockers(pid: int) -> Statement[Blocker]:
    """Name the sessions that a backend waits for."""
    return Statement(sql("schema_blockers"), {"pid": pid}, Blocker)


def release() -> Statement[Any]:
    """Say which release of pgtasks migrated the schema last."""
    return Statement(sql("schema_release"), {})


def is_in_the_way(error: Exception) -> bool:
    """Tell whether a migration failed because somebody held a lock."""
    return getattr(error, "sqlstate", None) in _IN_THE_WAY


@contextmanager
def translated(dsn: str) -> Iterator[None]:
    """Turn what psycopg raises into our own errors, also where SQLAlchemy has wrapped it."""
    try:
        yield
    except Exception as error:
        cause = error if isinstance(error, psycopg.Error) else getattr(error, "orig", None)
        if isinstance(cause, psycopg.Error):
            raise session.translate(cause, dsn) from error
        raise
