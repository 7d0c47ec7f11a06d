"""A database whose queue keeps its length: whatever is finished is added again at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import psycopg
from psycopg import sql

from bench import fleet, worker
from bench.cpu import OURS, BackendSampler
from bench.database import Bench, Connection
from pgtasks import schema

# A worker's first claims plan their statements, its interpreter is still warming up, and the sampler
# has to find its sessions.
RUN_IN_S = 1.0
REFILL_EVERY_S, REFILL_LEAST = 0.005, 100
FINISHED_S = 600.0
_DONE = "SELECT coalesce(max(id), 0) FROM pgtasks.history"
_GONE = (
    "SELECT NOT EXISTS (SELECT FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'pgtasks/%')"
)
# Of all clients: while a worker runs, there is nobody else but the thread that refills.
_READ = (
    "SELECT coalesce(sum(read_bytes), 0)::double precision / current_setting('block_size')::integer"
    " FROM pg_stat_io WHERE backend_type = 'client backend' AND object = 'relation'"
)
_OUT_OF_CACHE = (
    "SELECT count(pg_buffercache_evict_relation(r.relid)) FROM (SELECT 'pgtasks.tasks'::regclass AS relid"
    " UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = 'pgtasks.tasks'::regclass) AS r"
)


class Costs(NamedTuple):
    """What the tasks of a span of time cost in CPU, None where that cannot be read, and how many a second they were.

    `claim_us` and `finish_us` are those of the server processes that claim and that complete. `blocks_read` are
    those that the server asked the system for, per 1,000 tasks, from the worker's start to its end.
    """

    claim_us: float | None
    finish_us: float | None
    worker_us: float | None
    rate: float
    blocks_read: float


@dataclass(frozen=True)
class Level(Bench):
    """A database of its own on the measured server, with a queue of a fixed length."""

    database: str

    @property
    def dsn(self) -> str:
        """The database that is measured."""
        return self.server.dsn_for(self.database)

    @property
    def name(self) -> str:
        """The name of the database that is measured."""
        return self.database

    def drain(self, tasks: int, *, is_warm: bool) -> Costs:
        """Let a worker run about so many tasks, after some that do not count; raises AssertionError when one is lost.

        Before a warm run, what it will claim is read once: a long queue's head has left the server's
        cache long ago, where a short one's is still there from the inserts. Before a cold one, the queue and its
        indexes are thrown out of that cache: an earlier run has read more than it claimed.
        """
        self.connection.execute("TRUNCATE pgtasks.history")
        # Not the least id: what an earlier worker gave back as it ended stands at the end of the queue.
        first: int = self.value("SELECT id FROM pgtasks.tasks ORDER BY run_at, id LIMIT 1")
        before: int = self.value("SELECT count(*) FROM pgtasks.tasks")
        if is_warm:
            self._warm(2 * tasks)
        else:
            self._cool()
        read = self._blocks_read()
        with (
            BackendSampler(self.admin_dsn, self.name) as sampler,
            fleet.Fleet(self, fleet.worker("bench.app:app", concurrency=worker.CONCURRENCY)) as running,
            self._refilled(before),
        ):
            running.until(lambda: self.value(_DONE) > first, fleet.READY_S, "the worker runs tasks")
            running.sleep(RUN_IN_S)
            started_s, done, used_s = time.time(), self.value(_DONE), running.cpu_s()
            running.until(lambda: self.value(_DONE) >= done + tasks, FINISHED_S, "the tasks are done")
            ended_s, after_s = time.time(), running.cpu_s()
            running.stop()
            running.until(lambda: self.value(_GONE), fleet.READY_S, "the worker's sessions have ended")
            read = (self._blocks_read() - read) / self.value("SELECT count(*) FROM pgtasks.history") * 1000
        claimed = self._claimed_between(started_s, ended_s)

        def us_of(part: str) -> float | None:
            part_s = sampler.used_s(part, started_s, ended_s)
            return None if part_s is None else part_s / claimed * 1e6

        return Costs(
            claim_us=us_of("claim"),
            finish_us=us_of("finish"),
            worker_us=None if used_s is None or after_s is None else (after_s - used_s) / claimed * 1e6,
            rate=claimed / (ended_s - started_s),
            blocks_read=read,
        )

    def _claimed_between(self, started_s: float, ended_s: float) -> int:
        claimed: int = self.value(
            "SELECT count(*) FROM pgtasks.history"
            " WHERE started_at >= to_timestamp(%s) AND started_at < to_timestamp(%s)",
            started_s,
            ended_s,
        )
        return claimed

    def _warm(self, tasks: int) -> None:
        """Read what will be claimed first, in the index and in the table."""
        self.value(
            "SELECT sum(length(head.name)) FROM (SELECT t.name FROM pgtasks.tasks AS t"
            " WHERE t.queue = 'default' AND t.priority = 0 ORDER BY t.run_at, t.id LIMIT %s) AS head",
            tasks,
        )

    def _cool(self) -> None:
        """Throw the queue and its indexes out of the server's cache; the system's keeps them."""
        self.connection.execute("CREATE EXTENSION IF NOT EXISTS pg_buffercache")
        self.value(_OUT_OF_CACHE)

    def _blocks_read(self) -> float:
        """Count the blocks that were read so far by sessions that have ended, and by this one."""
        self.value("SELECT pg_stat_force_next_flush()")
        read: float = self.value(_READ)
        return read

    @contextmanager
    def _refilled(self, before: int) -> Iterator[None]:
        """Add a task for each one that is finished, in a thread; then check that none is missing, and none too many."""
        stop, failed, added = threading.Event(), [], 0

        def refill() -> None:
            nonlocal added
            counted = 0
            try:
                with psycopg.connect(self.dsn, autocommit=True, application_name=OURS) as connection:
                    while not stop.wait(REFILL_EVERY_S):
                        more, counted = _refill(connection, counted)
                        added += more
            except psycopg.Error as error:
                failed.append(error)

        thread = threading.Thread(target=refill, name="refill", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not failed, f"the queue could not be refilled: {failed[0]}"
        left = self.value("SELECT count(*) FROM pgtasks.tasks")
        done = self.value("SELECT count(*) FROM pgtasks.history")
        assert left + done == before + added, (
            f"{left} tasks are left and {done} are done, of {before} and {added} more: the run is not valid"
        )
        assert added <= done, f"{added} tasks were added for {done} that were done: the run is not valid"


def _refill(connection: Connection, counted: int) -> tuple[int, int]:
    """Add a task for each one done with a greater id than what was counted so far; gives how many, and the new mark.

    Tasks are finished nearly in the order of their ids. The few that come out of it are never counted
    and leave the queue a little shorter.
    """
    row = connection.execute("SELECT count(*), max(id) FROM pgtasks.history WHERE id > %s", (counted,)).fetchone()
    assert row is not None
    missing: int = row[0]
    if missing < REFILL_LEAST:
        return 0, counted
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 'noop' FROM generate_series(1, %s)", (missing,))
    return missing, row[1]


@contextmanager
def made(bench: Bench, length: int) -> Iterator[Level]:
    """Make a database with a queue of so many tasks; it is dropped afterwards."""
    database = f"backlog_{length}"
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))
    with psycopg.connect(bench.admin_dsn, autocommit=True, application_name=OURS) as admin:
        admin.execute(drop)
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        dsn = bench.server.dsn_for(database)
        try:
            schema.migrate(dsn)
            with psycopg.connect(dsn, autocommit=True, application_name=OURS) as connection:
                level = Level(bench.server, connection, database)
                level.fill(length)
                yield level
        finally:
            admin.execute(drop)
