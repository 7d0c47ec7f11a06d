"""Bugs that are planted on purpose, to show that the suite would see them.

Each is a monkeypatch; the product has no hook for them. `python -m tests.chaos.planted NAME worker …`
is `pgtasks worker …` with the bug. A bug of producers is planted where they run, one of the schema in
the database. A plant whose place is not found any more raises at once: a bug that was not planted
would otherwise pass for one that was not seen.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, LiteralString
from unittest import mock

import psycopg

from pgtasks import client
from pgtasks.client import Options
from pgtasks.engine import completer, cursor, executor
from pgtasks.model import NewTask
from pgtasks.outcome import Completed
from pgtasks.store import sql_files, statements

# For one SQL file: what to look for, a regular expression, and what to put in its place.
Edits = Mapping[str, Sequence[tuple[str, str]]]


@dataclass(frozen=True)
class Plant:
    """One bug: how it is planted, what has to strike for it to show, and which invariants must see it."""

    sentence: str
    seen_by: tuple[str, ...]
    faults: tuple[str, ...] = ()
    mix: Mapping[str, float] = field(default_factory=lambda: {"quick": 3, "brief": 3})
    edits: Edits = field(default_factory=dict)
    patch: Callable[[], None] | None = None
    # Of what, which attribute, and the function that is put in its place.
    producers: tuple[Any, str, Callable[..., Any]] | None = None
    database: LiteralString = ""
    duration_s: float = 4.0
    pause_s: float = 0.1
    drain_s_max: float = 15.0


def plant(name: str) -> None:
    """Plant a bug in this process, which is a worker's."""
    bug = PLANTS[name]
    if bug.edits:
        edit_sql(bug.edits)
    if bug.patch is not None:
        bug.patch()


def edit_sql(edits: Edits) -> None:
    """Let every module read these SQL files as edited; raises LookupError when there is nothing to edit."""
    original = sql_files.sql

    @cache
    def read(name: str) -> str:
        text = original(name)
        for pattern, replacement in edits.get(name, ()):
            text = edited(text, name, pattern, replacement)
        return text

    for name in edits:
        read(name)
    for module in list(sys.modules.values()):
        if getattr(module, "sql", None) is original:
            setattr(module, "sql", read)  # noqa: B010 - a module has no such attribute by type


def edited(text: str, name: str, pattern: str, replacement: str) -> str:
    """Give the text of an SQL file with a change; raises LookupError when there is nothing to change."""
    text, count = re.subn(pattern, replacement, text)
    if not count:
        raise LookupError(f"{name}.sql has no {pattern!r} any more: plant this bug in another way")
    return text


@contextmanager
def in_producers(name: str | None) -> Iterator[None]:
    """Plant a bug of producers in this process, for a while."""
    with ExitStack() as stack:
        if name and (bug := PLANTS[name].producers):
            stack.enter_context(mock.patch.object(*bug))
        yield


def in_database(name: str | None, dsn: str) -> None:
    """Plant a bug of the schema."""
    if name and PLANTS[name].database:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(PLANTS[name].database)


def _complete_before_run() -> None:
    begin = executor.Executor._begin  # noqa: SLF001 - where the handlers of a batch begin

    def early(self: executor.Executor, queue: str, tasks: Any) -> None:
        before = set(self._running)
        begin(self, queue, tasks)
        fresh = [attempt for attempt in self._running if attempt not in before]
        self._on_outcomes([(attempt, Completed()) for attempt in fresh])

    setattr(executor.Executor, "_begin", early)  # noqa: B010 - mypy refuses to assign to a method


def _drop_on_error() -> None:
    async def instead(self: completer.Completer, batch: Any, error: Exception) -> list[Any]:
        return []

    setattr(completer.Completer, "_instead", instead)  # noqa: B010 - mypy refuses a plain assignment


def _never_look_back() -> None:
    def never(self: cursor.Cursor, now: float) -> bool:
        return not self._lanes

    def far(self: cursor.Cursor, now: float) -> float:
        return 1e6 if self._lanes else 0.0

    def no(self: cursor.Cursor, now: float) -> bool:
        return False

    for name, bug in {"rescan_due": never, "rescan_in_s": far, "near_in_s": far, "back_due": no}.items():
        setattr(cursor.Cursor, name, bug)
    setattr(cursor, "LAG", timedelta(0))  # noqa: B010 - mypy refuses a plain assignment


def _swap_results() -> None:
    complete = statements.complete

    def swapped(worker_id: Any, tasks: Any, outcomes: Sequence[Completed], *rest: Any, **more: Any) -> Any:
        return complete(worker_id, tasks, [*outcomes[1:], outcomes[0]], *rest, **more)

    setattr(statements, "complete", swapped)  # noqa: B010 - mypy refuses to assign to a function


def _stop_without_release() -> None:
    for name in ("stop_all", "abandon_all"):
        setattr(executor.Executor, name, lambda self: None)
    running = vars(executor.Executor)["running"].fget

    def gone(self: executor.Executor) -> int:
        return int(running(self)) if self.accepting else 0

    setattr(executor.Executor, "running", property(gone))  # noqa: B010 - mypy refuses a plain assignment


_TASK = Options.task


def _without_key(self: Options, *arguments: Any, **options: Any) -> NewTask:
    return _TASK(self, *arguments, **options)._replace(unique_key=None)


_CLAIMS = ("tasks_claim", "tasks_follow", "tasks_rescan")
_PAUSES = ("pause_worker",)
_KILLS = ("kill_worker",)
_THREADS = {"brief": 1.0}
# Few enough for the slots that there are.
_LASTING = {"lasting": 1.0}

PLANTS: dict[str, Plant] = {
    "unfenced_complete": Plant(
        "a completion is accepted from whoever sends it",
        ("I4", "I11"),
        _PAUSES,
        {"steady": 1},
        {"tasks_complete": [(r"AND t\.lease_id = [^\n]*", "")]},
        duration_s=5,
        pause_s=0.3,
    ),
    "unfenced_retry": Plant(
        "a failure is accepted from whoever sends it",
        ("I3", "I4", "I7"),
        _PAUSES,
        {"doomed": 1},
        {"tasks_retry": [(r"AND r\.lease_id = f\.lease_id", "")]},
        duration_s=6,
    ),
    "no_skip_locked": Plant(
        "claims neither lock what they take nor skip what is locked",
        ("I7",),
        edits={name: [(r"FOR NO KEY UPDATE OF t SKIP LOCKED", "")] for name in _CLAIMS},
    ),
    "sweep_ignores_attempts": Plant(
        "a task whose worker is lost at the last attempt is queued again",
        ("I6",),
        mix={"fatal": 1, "quick": 20},
        edits={"leases_sweep": [(r"WHEN t\.attempt >= [^\n]* THEN 'dead'", "WHEN false THEN 'dead'")]},
    ),
    "sweep_forgets_record": Plant(
        "a lost attempt leaves no record",
        ("I7", "I13"),
        _KILLS,
        _LASTING,
        {"leases_sweep": [(r"(h\.queue, h\.name, h\.claimed_at\s+FROM held AS h)", r"\1 WHERE false")]},
        pause_s=0.5,
    ),
    "sweep_loses_tasks": Plant(
        "the tasks of a lost worker are deleted",
        ("I1",),
        _KILLS,
        _LASTING,
        {"leases_sweep": [(r"ELSE 'queued'", "ELSE 'gone'")]},
        pause_s=0.5,
    ),
    "sweep_ignores_expiry": Plant(
        "leases are swept before they expire",
        ("I16",),
        mix=_LASTING,
        pause_s=0.5,
        edits={"leases_sweep": [(r"l\.expires_at < clock_timestamp\(\) AND", "")]},
    ),
    "heartbeat_never_renews": Plant(
        "heartbeats are answered, and renew nothing",
        ("I16",),
        mix=_LASTING,
        pause_s=0.5,
        edits={"workers_beat": [(r"SET expires_at = [^\n]*", "SET expires_at = l.expires_at")]},
    ),
    "release_charges_attempt": Plant(
        "a task that is given back is charged for it",
        ("I7",),
        mix={"snoozing": 1},
        duration_s=2.5,
        edits={"tasks_release": [(r"attempt = greatest\(t\.attempt - 1, 0\),", "")]},
    ),
    "stop_without_release": Plant(
        "a worker that stops leaves its tasks to the sweep",
        ("I12",),
        mix=_LASTING,
        pause_s=0.5,
        patch=_stop_without_release,
    ),
    "complete_before_run": Plant(
        "a task is completed before it runs",
        ("I11",),
        _KILLS,
        patch=_complete_before_run,
    ),
    "completion_dropped_on_error": Plant(
        "an outcome that cannot be written is forgotten",
        ("I1",),
        ("terminate_sessions",),
        patch=_drop_on_error,
        drain_s_max=8,
    ),
    "completed_twice": Plant(
        "a completion writes two rows of history",
        ("I5",),
        edits={"tasks_complete": [(r"(d\.note, d\.headers\s+FROM done AS d)", r"\1 CROSS JOIN generate_series(1, 2)")]},
    ),
    "results_swapped": Plant(
        "a batch gives each task the result of its neighbour",
        ("I11",),
        patch=_swap_results,
        duration_s=2.5,
    ),
    "cursor_never_looks_back": Plant(
        "what was committed late, behind the cursor, is not looked for",
        ("I1",),
        patch=_never_look_back,
        drain_s_max=8,
    ),
    "cron_without_unique": Plant(
        "schedulers look whether a slot was fired, and nothing keeps two of them from firing it",
        ("I8",),
        edits={
            "schedules_fire": [
                (r"AND p\.expected IS NOT DISTINCT FROM r\.next_fire", ""),
                (r"FOR NO KEY UPDATE SKIP LOCKED", ""),
                (r"WHERE NOT %\(locked\)s OR", "WHERE NOT %(locked)s OR true OR"),
            ]
        },
        database="ALTER TABLE pgtasks.schedule_fires DROP CONSTRAINT schedule_fires_pkey",
        duration_s=8,
    ),
    "enqueue_autocommits": Plant(
        "an enqueue does not use the connection that it is given",
        ("I2",),
        producers=(client, "_sync", lambda connection: None),
    ),
    "unique_key_ignored": Plant(
        "an enqueue from Python does not write its unique key",
        ("I9",),
        mix={"steady": 1},
        pause_s=0.2,
        producers=(Options, "task", _without_key),
    ),
}


if __name__ == "__main__":
    from pgtasks.cli import main

    plant(sys.argv.pop(1))
    main()
