"""What happened in a run: what producers and workers said, and what the database holds in the end.

Three sources. The producers' log has what became of each token that somebody wanted to enqueue. The
workers' log has what handlers did, on CLOCK_MONOTONIC. The tables have what was accepted; each row
names the lease under which it was written, which is better evidence than anybody's log.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import psycopg
from psycopg.rows import class_row

NS = 1_000_000_000
# ok: committed. existing: a living task had the key. rolled_back: certainly not there. info: nobody knows.
Status = Literal["ok", "existing", "rolled_back", "info"]
Place = Literal["live", "completed", "cancelled", "dead"]


class Sent(NamedTuple):
    """One task that a producer wanted to enqueue."""

    token: str
    kind: str
    status: Status
    via: str = ""
    key: str | None = None
    task_id: int | None = None


class Mark(NamedTuple):
    """One line of the workers' log; `at` is in nanoseconds."""

    event: str
    kind: str
    task_id: int
    lease_id: int
    attempt: int
    token: str
    pid: int
    parent: int
    at: int
    value: Any = None

    def of(self, pid: int) -> bool:
        """Tell whether this process, or a child of it, did this."""
        return pid in {self.pid, self.parent}


@dataclass(frozen=True)
class Row:
    """Where a task is in the end: still alive, in history, or among the dead letters."""

    id: int
    place: Place
    name: str
    attempt: int
    max_attempts: int
    lease_id: int | None = None
    token: str | None = None
    unique_key: str | None = None
    result: Any = None
    reason: str | None = None
    schedule: str | None = None
    fire_time: datetime | None = None
    finished_at: datetime | None = None
    state: str | None = None


@dataclass(frozen=True)
class Try:
    """A row of `pgtasks.attempts`: an attempt that did not end in success."""

    task_id: int
    attempt: int
    lease_id: int
    outcome: str
    error_class: str | None = None
    name: str = ""
    finished_at: datetime | None = None


@dataclass(frozen=True)
class Fire:
    """A row of `pgtasks.schedule_fires`."""

    schedule: str
    fire_time: datetime
    task_id: int | None
    outcome: str


class Deed(NamedTuple):
    """Something that was done to the system, from one moment to another (nanoseconds).

    `kill`, `pause` and `term` name the process; every other word is a fault that may concern any.
    `code` is what a process that was asked to stop exited with.
    """

    what: str
    began: int
    ended: int
    pid: int | None = None
    code: int | None = None
    alone: bool = False


@dataclass
class History:
    """All of a run."""

    sent: list[Sent] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    tries: list[Try] = field(default_factory=list)
    fires: list[Fire] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)
    cancels: set[int] = field(default_factory=set)
    # Every how many seconds a schedule fires.
    periods: dict[str, int] = field(default_factory=dict)
    # What was seen in snapshots while the run went on and may never be seen, one sentence each.
    sightings: list[str] = field(default_factory=list)
    # How many writes workers said were refused because their lease had ended.
    refused: int = 0
    # How many leases are left, how long the drain took, and how long it was allowed to take.
    leases_left: int = 0
    drain_s: float = 0.0
    drain_s_max: float = float("inf")
    grace_s: float = 10.0
    # The database's clock, and CLOCK_MONOTONIC in nanoseconds at the same moment.
    clock: tuple[datetime, int] | None = None

    @cached_property
    def starts(self) -> list[Mark]:
        """The beginnings of handlers, in the order of the log."""
        return [mark for mark in self.marks if mark.event == "start"]

    @cached_property
    def starts_of(self) -> dict[int, list[Mark]]:
        """The beginnings of handlers by task."""
        return _grouped((mark.task_id, mark) for mark in self.starts)

    @cached_property
    def marks_of(self) -> dict[tuple[int, int], list[Mark]]:
        """The marks of each (task, lease)."""
        return _grouped(((mark.task_id, mark.lease_id), mark) for mark in self.marks)

    @cached_property
    def effects(self) -> dict[tuple[int, int], Mark]:
        """The effect of each (task, lease)."""
        return {(mark.task_id, mark.lease_id): mark for mark in self.marks if mark.event == "effect"}

    @cached_property
    def rows_of(self) -> dict[int, list[Row]]:
        """The rows of each task: exactly one, if all is well."""
        return _grouped((row.id, row) for row in self.rows)

    @cached_property
    def tries_of(self) -> dict[int, list[Try]]:
        """The failed attempts of each task."""
        return _grouped((one.task_id, one) for one in self.tries)

    @cached_property
    def rows_by_token(self) -> dict[str, list[Row]]:
        """The rows that carry each token."""
        return _grouped((row.token, row) for row in self.rows if row.token)

    @cached_property
    def deaths(self) -> dict[int, int]:
        """When each process that was killed was killed."""
        return {deed.pid: deed.began for deed in self.deeds if deed.what == "kill" and deed.pid is not None}

    @cached_property
    def ends(self) -> set[tuple[int, int]]:
        """Each (task, lease) under which an end was accepted."""
        finished = {(row.id, row.lease_id) for row in self.rows if row.place != "live" and row.lease_id is not None}
        return finished | {(one.task_id, one.lease_id) for one in self.tries}

    def at(self, when: datetime | None) -> int:
        """Give a moment of the database's clock on CLOCK_MONOTONIC, within some milliseconds."""
        if when is None or self.clock is None:
            return 0
        return self.clock[1] + round((when - self.clock[0]).total_seconds() * NS)


K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T", bound=tuple[Any, ...])


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    found: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def read_log(path: Path, kind: type[T]) -> list[T]:
    """Read a log of JSON lines; a last line without an end, of a machine that ran out of disk, is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [kind(**json.loads(line)) for line in lines]


ROWS = """
WITH known AS (SELECT k.name, k.max_attempts FROM pgtasks.task_types AS k),
     found AS (
    SELECT t.id, 'live' AS place, t.name, t.attempt, t.max_attempts, t.lease_id, t.payload, t.unique_key,
        NULL::jsonb AS result, NULL AS reason, t.headers, NULL::timestamptz AS finished_at, t.state
    FROM pgtasks.tasks AS t
    UNION ALL
    SELECT h.id, h.status, h.name, h.attempt, h.max_attempts, h.lease_id, h.payload, h.unique_key,
        h.result, h.error, h.headers, h.finished_at, NULL
    FROM pgtasks.history AS h
    UNION ALL
    SELECT d.id, 'dead', d.name, d.attempt, d.max_attempts, d.lease_id, d.payload, d.unique_key,
        NULL, d.reason, d.headers, d.finished_at, NULL
    FROM pgtasks.dead_letters AS d
)
SELECT f.id, f.place, f.name, f.attempt, coalesce(f.max_attempts, k.max_attempts, 2147483647) AS max_attempts,
    f.lease_id, f.payload ->> 'token' AS token, f.unique_key, f.result, f.reason,
    f.headers ->> 'pgtasks.schedule' AS schedule,
    (f.headers ->> 'pgtasks.fire_time')::timestamptz AS fire_time, f.finished_at, f.state
FROM found AS f LEFT JOIN known AS k ON f.name = k.name
"""
TRIES = "SELECT task_id, attempt, lease_id, outcome, error_class, name, finished_at FROM pgtasks.attempts"
FIRES = "SELECT schedule, fire_time, task_id, outcome FROM pgtasks.schedule_fires"


def read_tables(history: History, dsn: str) -> None:
    """Read what the database holds, in one snapshot."""
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        history.rows = connection.cursor(row_factory=class_row(Row)).execute(ROWS).fetchall()
        history.tries = connection.cursor(row_factory=class_row(Try)).execute(TRIES).fetchall()
        history.fires = connection.cursor(row_factory=class_row(Fire)).execute(FIRES).fetchall()
        left = connection.execute("SELECT count(*), clock_timestamp() FROM pgtasks.leases").fetchone()
        if left is not None:
            history.leases_left, history.clock = left[0], (left[1], time.monotonic_ns())


def save(history: History, path: Path) -> None:
    """Write all of a run to a file, for whoever looks into a violation."""
    document = {one.name: getattr(history, one.name) for one in fields(history)}
    path.write_text(json.dumps(document, default=_plain, indent=1), encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Row | Try | Fire):
        return asdict(value)
    return sorted(value) if isinstance(value, set) else str(value)
