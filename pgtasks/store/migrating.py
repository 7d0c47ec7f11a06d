"""What migrations need from PostgreSQL: connections, the lock of the only migrator, and blockers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg

from pgtasks.errors import DatabaseError
from pgtasks.store import session
from pgtasks.store.session import Statement, SyncConnection
from pgtasks.store.sql_files import sql

# What passes when whoever is in the way has gone: a lock not available, a deadlock.
_IN_THE_WAY = ("55P03", "40P01")
# What a migration says itself that waits for transactions, of which no lock tells.
_STILL_OPEN = "a transaction that wrote before this migration is still open"
_POLL_S = 0.2
_REPORT_INTERVAL_S = 5.0
_LOOK_INTERVAL_S = 0.3
_QUERY_CHARACTERS_MAX = 120

Progress = Callable[[str], None]


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
    username: str
    hidden: bool


def connect_for_alembic(dsn: str, pooler: str) -> SyncConnection:
    """Open a connection whose transactions SQLAlchemy begins and ends; raises DatabaseUnavailable."""
    # Statements of a migration end by the time limits that its prologue sets; an index may take long.
    connection = session.connect(dsn, "migrate", pooler=pooler, patient=True)
    connection.autocommit = False
    connection.prepare_threshold = None
    return connection


def backend_pid(connection: SyncConnection) -> int:
    """Give the process id of a connection's server side."""
    return connection.info.backend_pid


@contextmanager
def only_migrator(connection: SyncConnection, wait_s: float, report: Progress) -> Iterator[None]:
    """Run a block as the only migrator of a database; raises DatabaseError when it cannot.

    The connection is kept in a transaction, whose end gives up the lock, whatever ended it.
    Polled, because a session that waits for a lock is in the way of CREATE INDEX CONCURRENTLY.
    """
    deadline, report_at = time.monotonic() + wait_s, time.monotonic()
    while True:
        with session.translated(), connection.transaction():
            attempt = session.fetch_all(connection, Statement(sql("schema_lock"), {}, LockAttempt))[0]
            if attempt.taken:
                yield
                return
        if time.monotonic() > deadline:
            raise DatabaseError(
                f"another pgtasks migrate (pid {attempt.holder}) has been at work for {wait_s:g} s; "
                "look what it waits for, or end it, and run: pgtasks migrate"
            )
        if time.monotonic() >= report_at:
            report(f"waiting for another pgtasks migrate (pid {attempt.holder})")
            report_at = time.monotonic() + _REPORT_INTERVAL_S
        time.sleep(random.uniform(_POLL_S / 2, _POLL_S))


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


class Watcher:
    """Finds out, in a thread and over its own connection, who blocks a migration."""

    def __init__(self, dsn: str, pooler: str) -> None:
        self.pid: int | None = None
        self._dsn, self._pooler = dsn, pooler
        self._seen: list[Blocker] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, name="pgtasks-migrate-watcher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        if self._done.wait(_LOOK_INTERVAL_S):
            return
        try:
            with session.connect(self._dsn, "migrate", pooler=self._pooler) as connection:
                while not self._done.wait(_LOOK_INTERVAL_S):
                    if self.pid is not None:
                        self._seen = session.fetch_all(connection, blockers(self.pid)) or self._seen
        except DatabaseError:
            return  # Only the message gets poorer.

    def blame(self, error: DatabaseError) -> str:
        """Describe who was in the way, as far as it is known; ``error`` is what the migration failed with."""
        if not self._seen:
            said = _printable(str(error).splitlines()[0])
            return said if said.startswith(_STILL_OPEN) else "another session holds a lock on what it changes"
        one = self._seen[0]
        if one.hidden:
            return (
                f"pid {one.pid} of role {_printable(one.username)} is in the way; "
                "what it does is shown to members of pg_monitor"
            )
        return (
            f"pid {one.pid} ({one.application}) is in the way: {one.state}, transaction open for {one.open_s:.0f} s, "
            f"last statement: {_printable(one.query)[:_QUERY_CHARACTERS_MAX]}"
        )


def _printable(text: str) -> str:
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
