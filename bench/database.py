"""The database that is measured: a durable server of our own, filled and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import psycopg

from bench import machine
from pgtasks import schema
from pgtasks.embedded import DATABASE, PrivateServer
from pgtasks.settings import QUEUE_DEFAULT

# fsync, synchronous_commit and full_page_writes stay as PostgreSQL ships them: on. Room for the
# WAL of a whole run keeps checkpoints, which would hit one round and not the next, out of it.
OPTIONS = {
    "shared_buffers": "512MB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "30min",
}
SHOWN = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "wal_compression",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
)
_TABLES = ("tasks", "leases", "history", "attempts", "dead_letters", "workers")
Connection = psycopg.Connection[Any]


class Counters(NamedTuple):
    """What the server has counted so far, in this database (WAL: in all, there is no other)."""

    commits: int
    updates: int
    hot_updates: int
    wal_bytes: int
    full_page_images: int

    def since(self, before: Self) -> Counters:
        """Give what was counted after an earlier look."""
        return Counters(*(new - old for old, new in zip(before, self, strict=True)))


class Span(NamedTuple):
    """When the first task was claimed and the last one completed, and how many there were."""

    tasks: int
    seconds: float


@dataclass(frozen=True)
class Bench:
    """A running server and a connection to the database that is measured."""

    server: PrivateServer
    connection: Connection

    @property
    def dsn(self) -> str:
        """The database that is measured."""
        return self.server.dsn

    @property
    def admin_dsn(self) -> str:
        """Another database of the server: what we ask there is not counted here."""
        return self.server.dsn_for("postgres")

    @property
    def name(self) -> str:
        """The name of the database that is measured."""
        return DATABASE

    def settings(self) -> dict[str, str]:
        """Give the server's settings that a figure depends on."""
        found = self.connection.execute(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)", (list(SHOWN),)
        )
        return dict(sorted(found.fetchall()))

    def value(self, statement: str, *params: Any) -> Any:
        """Run a statement with `%s` parameters and give the one value of its one row."""
        row = self.connection.execute(statement.encode(), params or None).fetchone()
        assert row is not None
        return row[0]

    def fill(
        self,
        tasks: int,
        names: Sequence[str] = ("noop",),
        payload: str = "{}",
        queues: Sequence[str] = (QUEUE_DEFAULT,),
    ) -> None:
        """Start from empty tables and insert tasks that are all due, of these names in turns.

        Each queue gets its share in one piece, so that tasks of different queues share no page of the table.
        """
        for table in _TABLES:
            self.connection.execute(f"TRUNCATE pgtasks.{table}".encode())
        self.connection.execute("CHECKPOINT")
        self.connection.execute(
            "INSERT INTO pgtasks.tasks (name, payload, queue)"
            " SELECT (%s::text[])[1 + n %% %s], %s::jsonb, (%s::text[])[1 + (n - 1) * %s / %s]"
            " FROM generate_series(1, %s::bigint) AS n",
            (list(names), len(names), payload, list(queues), len(queues), max(1, tasks), tasks),
        )
        # Otherwise autovacuum would do it, sometime during the run.
        self.connection.execute("VACUUM (ANALYZE) pgtasks.tasks")

    def empty(self) -> None:
        """Leave nothing of ours for autovacuum to clean up, before something else is measured on this server."""
        self.fill(0)

    def emptiness(self) -> Callable[[], bool]:
        """Give a cheap question: is no task left of those that there are now?

        What is last in the queue is asked for first, by its key: a look at the whole table walks all
        that is dead in it, and would take more time the further the work is.
        """
        last = self.value("SELECT coalesce(max(id), 0) FROM pgtasks.tasks")

        def is_empty() -> bool:
            return not (
                self.value("SELECT EXISTS (SELECT FROM pgtasks.tasks WHERE id BETWEEN %s - 100 AND %s)", last, last)
                or self.value("SELECT EXISTS (SELECT FROM pgtasks.tasks)")
            )

        return is_empty

    def counters(self) -> Counters:
        """Read the counters; those of another session are complete once it has ended."""
        self.connection.execute("SELECT pg_stat_force_next_flush()")
        row = self.connection.execute(
            "SELECT d.xact_commit, t.n_tup_upd, t.n_tup_hot_upd,"
            " (pg_current_wal_insert_lsn() - '0/0')::bigint, w.wal_fpi"
            " FROM pg_stat_database AS d, pg_stat_all_tables AS t, pg_stat_wal AS w"
            " WHERE d.datname = current_database() AND t.relid = 'pgtasks.tasks'::regclass"
        ).fetchone()
        assert row is not None
        return Counters(*row)

    def span(self, tasks: int) -> Span:
        """Give when the work was done, by history; it has to hold every task."""
        row = self.connection.execute(
            "SELECT count(*), extract(EPOCH FROM max(finished_at) - min(started_at))::double precision"
            " FROM pgtasks.history WHERE status = 'completed'"
        ).fetchone()
        assert row is not None
        span = Span(*row)
        assert span.tasks == tasks, f"{span.tasks} of {tasks} tasks are in history: the run is not valid"
        return span


@contextmanager
def started() -> Iterator[Bench]:
    """Start a server on a disk and migrate its database; both are gone afterwards.

    Raises AssertionError when there is no disk to be found: nothing is durable in memory.
    """
    folder = machine.disk_folder()
    filesystem = machine.filesystem(folder)
    assert filesystem not in machine.IN_MEMORY, (
        f"{folder} is in memory ({filesystem}), where nothing is durable: "
        "make /var/tmp a folder on a disk, or set TMPDIR to one"
    )
    with PrivateServer(options=OPTIONS, parent=folder) as server:
        schema.migrate(server.dsn)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            yield Bench(server, connection)
