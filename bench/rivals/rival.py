"""What a rival is: another task queue, installed into an environment and a database of its own.

A rival's worker is a process which runs handlers that do nothing and prints one JSON object a line
(`bench/rivals/scripts/progress.py` does that for Python):

    {"event": "ready"}                        connected, and about to take tasks
    {"event": "first", "at": 1764470000.1}    the first handler starts (seconds since 1970)
    {"event": "last", "at": …, "tasks": n}    that many handlers, as many as it was told, have run
    {"event": "stopped", "at": …, "tasks": n} everything that it ran is acknowledged; it exits with 0

After `last` it acknowledges what is left and stops by itself; on SIGTERM it stops earlier, with
`stopped`. Lines that are not such objects (a rival's own log) are passed over. Where handlers run in
several processes, the script may find out about `last` however it can, or leave it out (`says_last`):
the end of a run is when nothing in the database is unfinished.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from bench.cpu import OURS
from bench.database import Bench

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "scripts"


class Unavailable(Exception):
    """A rival cannot run here; says what is missing, in half a sentence."""


class Command(NamedTuple):
    """A process to start: its arguments, and what is added to the environment."""

    argv: list[str]
    env: Mapping[str, str] = {}


class Place(NamedTuple):
    """Where a rival keeps its tasks."""

    dsn: str
    # Its database on the measured server; None when it has a server of its own.
    database: str | None
    # The server of its own, whose CPU time is then the "backends'".
    server_pid: int | None = None


class Rival(ABC):
    """Another task queue, configured for speed as its authors would."""

    name: ClassVar[str]
    title: ClassVar[str]
    # As pip or npm take them, each with its version.
    packages: ClassVar[tuple[str, ...]]
    # What was configured for speed, and where its authors say so.
    settings: ClassVar[str]
    sources: ClassVar[tuple[str, ...]]
    # What is left of a finished task: a row kept, a row moved, nothing.
    keeps: ClassVar[str]
    # Whether its worker prints `last`; the database is asked rarely before that.
    says_last: ClassVar[bool] = True

    @property
    def folder(self) -> Path:
        """Where it is installed; never in the repository."""
        return ROOT / ".bench" / self.name

    @abstractmethod
    def install(self) -> None:
        """Install it into `folder`, unless it is there; raises Unavailable when its runtime is missing."""

    @abstractmethod
    def place(self, bench: Bench) -> AbstractContextManager[Place]:
        """Give it an empty place with its schema, which is gone afterwards."""

    @abstractmethod
    def prepare(self, dsn: str) -> None:
        """Make its schema, the way that it does that itself."""

    @abstractmethod
    def fill(self, dsn: str, tasks: int) -> int:
        """Start from empty tables (and a CHECKPOINT), insert due tasks that do nothing, VACUUM (ANALYZE).

        Gives how many it put in: so many, or fewer where its store cannot hold them.
        """

    @abstractmethod
    def worker(self, dsn: str, tasks: int) -> Command:
        """Give the worker that runs this many tasks at its best settings, and then stops."""

    @abstractmethod
    def unfinished(self, dsn: str) -> bool:
        """Tell whether any task is not finished yet; cheap, asked every few milliseconds at the end."""

    @abstractmethod
    def finished(self, dsn: str) -> int:
        """Count the tasks whose end is acknowledged, by the database and not by the worker."""

    def waiting(self, dsn: str) -> int | None:  # noqa: ARG002  # those who know it override this
        """Count the tasks that were enqueued and not begun, by the database; None where that is not known."""
        return None

    def enqueue(self, dsn: str, tasks: int, how: str) -> Command:
        """Give the process that enqueues tasks through its API, `how` = "single" or "bulk".

        It prints "first" right before the first call and "last" after the last one. Raises
        NotImplementedError where this is not measured.
        """
        raise NotImplementedError

    def latency(self, dsn: str, tasks: int, every_s: float) -> Command:
        """Give a process that is an idle worker and enqueues one task each `every_s`.

        A task's payload is the time right before the call that enqueues it; the process ends with
        `{"event": "latencies", "s": [seconds from then to the start of its handler, …]}`. Raises
        NotImplementedError where this is not measured.
        """
        raise NotImplementedError


class PostgresRival(Rival):
    """One that keeps its tasks in a database of its own on the measured server."""

    # Emptied before tasks are inserted.
    tables: ClassVar[tuple[LiteralString, ...]]
    # Inserts as many due tasks as its only parameter (%s) says, as its own way to enqueue would.
    fill_sql: ClassVar[LiteralString]
    # Whether any task is not finished: a cheap one, asked every few milliseconds at the end of a run.
    unfinished_sql: ClassVar[LiteralString]
    # How many are finished, by the database and not by the worker.
    finished_sql: ClassVar[LiteralString]
    # How many are enqueued and not begun: that its API has enqueued what it was asked to.
    waiting_sql: ClassVar[LiteralString]

    def __init__(self) -> None:
        self._connections: dict[str, psycopg.Connection[Any]] = {}

    @contextmanager
    def place(self, bench: Bench) -> Iterator[Place]:
        """Give it an empty database with its schema, which is gone afterwards."""
        database = f"rival_{self.name}"
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))
        with psycopg.connect(bench.admin_dsn, autocommit=True) as admin:
            admin.execute(drop)
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
            dsn = bench.server.dsn_for(database)
            try:
                self.prepare(dsn)
                with psycopg.connect(dsn, autocommit=True, application_name=OURS) as connection:
                    self._connections[dsn] = connection
                    yield Place(dsn, database)
            finally:
                self._connections.pop(dsn, None)
                admin.execute(drop)

    def fill(self, dsn: str, tasks: int) -> int:
        """Start from empty tables, and insert due tasks that do nothing."""
        connection = self._connections[dsn]
        for table in self.tables:
            connection.execute(f"TRUNCATE {table} CASCADE")
        connection.execute("CHECKPOINT")
        self.insert(dsn, tasks)
        connection.execute("VACUUM (ANALYZE)")
        # So that what we did here is counted before a run and not in it.
        connection.execute("SELECT pg_stat_force_next_flush()")
        return tasks

    def insert(self, dsn: str, tasks: int) -> None:
        """Insert due tasks that do nothing into its empty tables."""
        self._connections[dsn].execute(self.fill_sql, (tasks,))

    def unfinished(self, dsn: str) -> bool:
        """Tell whether any task is not finished yet."""
        return bool(self.value(dsn, self.unfinished_sql))

    def finished(self, dsn: str) -> int:
        """Count the finished tasks."""
        return int(self.value(dsn, self.finished_sql))

    def waiting(self, dsn: str) -> int | None:
        """Count the tasks that were enqueued and not begun."""
        return int(self.value(dsn, self.waiting_sql))

    def value(self, dsn: str, statement: LiteralString) -> Any:
        """Ask its database for one value, on a connection that is not counted as the rival's."""
        row = self._connections[dsn].execute(statement).fetchone()
        assert row is not None
        return row[0]
