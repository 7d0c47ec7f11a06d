"""The same rows, in bulk: from Python through the API, and by a bare COPY of lines that are ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import psycopg

from bench.cpu import OURS, cpu_s_of
from bench.database import Bench
from pgtasks import App, NewTask
from pgtasks.store.sql_files import sql

# What a program that copies a file sends at once.
_COPY_BYTES = 64 * 1024
_COLUMNS = "name, payload, queue, priority, run_at, max_attempts, timeout, headers"


class Added(NamedTuple):
    """How long it took, and what it used on both sides."""

    seconds: float
    client_cpu_s: float
    backend_cpu_s: float | None


class Bulk:
    """An app with a task that takes two arguments, as most do, and the rows it makes."""

    def __init__(self, bench: Bench, rows: int) -> None:
        self._bench, self._rows = bench, rows
        self.app = App(bench.dsn)

        @self.app.task
        async def greet(user: str, number: int) -> None:
            """Stand for a handler; nothing runs it here."""
            raise NotImplementedError(user, number)

        self._task = greet
        self._lines = b""

    def tasks(self) -> Iterator[NewTask]:
        """Make the tasks, as a program does that has a row for each."""
        return (self._task.prepare(f"user-{number}", number) for number in range(self._rows))

    def one(self) -> None:
        """Add one task by itself."""
        self._task.enqueue("user", 1)

    async def one_async(self) -> None:
        """Add one task by itself, without blocking the event loop."""
        await self._task.aenqueue("user", 1)

    def from_python(self) -> Added:
        """Add them with `app.enqueue_many`, over a connection that is open."""
        self._bench.fill(0)
        self.app.enqueue_many([])
        meter = _Meter(self._client_pid())
        done = self.app.enqueue_many(self.tasks())
        return self._checked(meter.added(), done.created)

    def from_async_python(self) -> Added:
        """Add them with `app.aenqueue_many`, likewise."""
        self._bench.fill(0)
        return asyncio.run(self._from_async_python())

    async def _from_async_python(self) -> Added:
        self.app.close()
        await self.app.aenqueue_many([])
        meter = _Meter(self._client_pid())
        done = await self.app.aenqueue_many(self.tasks())
        return self._checked(meter.added(), done.created)

    def by_copy(self) -> Added:
        """Add the rows that the last run left with one COPY, from memory."""
        if not self._lines:
            out = f"COPY pgtasks.tasks ({_COLUMNS}) TO STDOUT".encode()
            with self._bench.connection.cursor() as cursor, cursor.copy(out) as copy:
                self._lines = b"".join(bytes(part) for part in copy)
        self._bench.fill(0)
        with psycopg.connect(self._bench.dsn, autocommit=True, application_name=OURS) as connection:
            meter = _Meter(connection.info.backend_pid)
            with connection.cursor() as cursor, cursor.copy(sql("tasks_copy")) as copy:
                for start in range(0, len(self._lines), _COPY_BYTES):
                    copy.write(self._lines[start : start + _COPY_BYTES])
            added = meter.added()
        return self._checked(added, self._bench.value("SELECT count(*) FROM pgtasks.tasks"))

    def _client_pid(self) -> int:
        """Find the one open connection of the app."""
        pid: int = self._bench.value(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'pgtasks/client%'"
        )
        return pid

    def _checked(self, added: Added, rows: int) -> Added:
        assert rows == self._rows, f"{rows} of {self._rows} tasks were added"
        return added


class _Meter:
    """Counts from when it is made."""

    def __init__(self, pid: int) -> None:
        self._pid, self._backend_s = pid, cpu_s_of(pid)
        self._thread_s, self._began = time.thread_time(), time.perf_counter()

    def added(self) -> Added:
        """Give what was used until now."""
        seconds, client_s = time.perf_counter() - self._began, time.thread_time() - self._thread_s
        backend_s = cpu_s_of(self._pid)
        used_s = None if backend_s is None or self._backend_s is None else backend_s - self._backend_s
        return Added(seconds, client_s, used_s)
