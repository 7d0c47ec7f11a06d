"""The statements behind `doctor`: what of a server and its tables matters to a queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from pgtasks.store.overview import OLD_TRANSACTION_S
from pgtasks.store.session import Statement, SyncConnection, fetch_all
from pgtasks.store.sql_files import sql

FOUND_MAX = 20
LOST_PERIOD_S = 3600.0
LOST_MAX = 10_000


class HealthRow(NamedTuple):
    """The server's settings and state that matter to a queue."""

    version_num: int
    now: datetime
    username: str
    in_recovery: bool
    read_only: str
    is_pooled: bool
    sees_others: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    autovacuum: str
    track_counts: str
    connections_max: int
    connections: int
    notify_usage: float


class TableRow(NamedTuple):
    """What the statistics say of one table; rows are estimates."""

    name: str
    live_rows: int
    dead_rows: int
    updates: int
    hot_updates: int
    table_bytes: int
    index_bytes: int
    vacuumed_at: datetime | None
    autovacuum_off: bool


class SlotRow(NamedTuple):
    """A replication slot that holds back vacuum, or that nobody reads."""

    name: str
    kind: str
    active: bool
    transactions_back: int | None
    wal_held: str | None


class ListenerRow(NamedTuple):
    """A session that does not take what the server sends it, and holds back vacuum."""

    pid: int
    username: str | None
    application: str | None
    stuck_s: float


class IdleRow(NamedTuple):
    """An open transaction that does nothing, holds locks, and has no snapshot."""

    pid: int
    age_s: float
    username: str | None
    application: str | None


class PrivilegeRow(NamedTuple):
    """What the current role may do."""

    may_enqueue: bool
    may_work: bool
    is_owner: bool


class LostRow(NamedTuple):
    """Attempts whose worker was lost lately, and the task name with the most of them."""

    lost: int
    most: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `doctor` reads of the schema, besides what `status` shows."""

    tables: list[TableRow]
    slots: list[SlotRow]
    listeners: list[ListenerRow]
    idle: list[IdleRow]
    privileges: PrivilegeRow
    partitions_missing: list[str]
    lost: LostRow


def read_health(connection: SyncConnection) -> HealthRow:
    """Read the server's settings and state; raises DatabaseError."""
    params = {"opened_pid": connection.info.backend_pid}
    return fetch_all(connection, Statement(sql("server_health"), params, HealthRow))[0]


def read_diagnosis(connection: SyncConnection) -> Diagnosis:
    """Read it all; raises DatabaseError."""
    return Diagnosis(
        tables=fetch_all(connection, Statement(sql("server_tables"), {}, TableRow)),
        slots=fetch_all(connection, Statement(sql("server_slots"), {"limit": FOUND_MAX}, SlotRow)),
        listeners=fetch_all(connection, Statement(sql("server_listeners"), {"limit": FOUND_MAX}, ListenerRow)),
        idle=fetch_all(
            connection,
            Statement(sql("server_idle"), {"older_than_s": OLD_TRANSACTION_S, "limit": FOUND_MAX}, IdleRow),
        ),
        privileges=fetch_all(connection, Statement(sql("server_privileges"), {}, PrivilegeRow))[0],
        partitions_missing=fetch_all(connection, Statement(sql("partitions_missing"), {}, str)),
        lost=fetch_all(
            connection, Statement(sql("attempts_lost"), {"period_s": LOST_PERIOD_S, "limit": LOST_MAX}, LostRow)
        )[0],
    )
