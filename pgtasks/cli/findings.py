"""What `doctor` finds: a level, what is so, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pgtasks.cli import rights
from pgtasks.cli.amounts import age
from pgtasks.cli.escape import shortened
from pgtasks.cli.warnings import warnings_of
from pgtasks.schema import SERVER_VERSION_LEAST
from pgtasks.store.diagnosis import Diagnosis, HealthRow, TableRow
from pgtasks.store.overview import Overview

Level = Literal["ok", "notice", "warning", "problem"]

# Below this nothing is worth a word; above it, what a person would see and ask about.
CLOCK_NOTICE_S, CLOCK_WARNING_S = 2.0, 60.0
CONNECTIONS_WARNING = 0.85
NOTIFY_WARNING, NOTIFY_PROBLEM = 0.1, 0.5
DEAD_ROWS_LEAST, DEAD_SHARE = 100_000, 2.0
HOT_UPDATES_LEAST, HOT_SHARE = 100_000, 0.4
INDEX_BYTES_LEAST, INDEX_BYTES_PER_ROW = 256 * 2**20, 1024
SLOT_TRANSACTIONS = 1_000_000
SERVER_VERSION_NEWEST = 189999
# What `status` warns about that somebody did on purpose, or that nothing is lost by.
_NOTICES = {"paused_queue", "more"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``check`` is its stable name; ``remedy`` says what to do unless all is well."""

    check: str
    level: Level
    message: str
    remedy: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Give it as an object of a JSON document."""
        return {"check": self.check, "level": self.level, "message": self.message, "remedy": self.remedy, **self.facts}


def is_healthy(findings: list[Finding]) -> bool:
    """Tell whether nothing needs anybody."""
    return all(finding.level in {"ok", "notice"} for finding in findings)


# --- The server ---


def of_server(health: HealthRow, *, clock_s: float) -> Iterator[Finding]:
    """Judge the server; ``clock_s`` is by how much this host's clock is ahead of its."""
    yield _version(health)
    yield _writable(health)
    yield _clock(clock_s)
    yield _durable(health)
    yield _connections(health)
    yield _notify(health)
    yield _statistics(health)
    if not health.sees_others:
        yield Finding(
            "visibility",
            "notice",
            f"role {_brief(health.username)} does not see other roles' sessions: their long transactions stay unseen",
            "GRANT pg_read_all_stats TO it (or pg_monitor)",
        )


def _version(health: HealthRow) -> Finding:
    shown = f"PostgreSQL {health.version_num // 10000}.{health.version_num % 10000}"
    if health.version_num < SERVER_VERSION_LEAST:
        return Finding("version", "problem", f"{shown} is older than 15", "upgrade the server")
    if health.version_num > SERVER_VERSION_NEWEST:
        return Finding("version", "notice", f"{shown} is newer than those this version was tested with")
    return Finding("version", "ok", shown)


def _writable(health: HealthRow) -> Finding:
    if health.in_recovery:
        remedy = "use a DSN that leads to the primary, with several hosts and target_session_attrs=read-write"
        return Finding("writable", "problem", "this server is a standby: nothing can be claimed or enqueued", remedy)
    # Read from a session of ours, which sets nothing about it.
    if health.read_only == "on":
        return Finding(
            "writable",
            "problem",
            f"default_transaction_read_only is on for role {_brief(health.username)} or this database",
            "ALTER ROLE … RESET default_transaction_read_only, and connect again",
        )
    return Finding("writable", "ok", "the server takes writes")


def _clock(clock_s: float) -> Finding:
    facts = {"ahead_s": round(clock_s, 3)}
    if abs(clock_s) < CLOCK_NOTICE_S:
        return Finding("clock", "ok", "this host's clock agrees with the database's", None, facts)
    side = "ahead of" if clock_s > 0 else "behind"
    return Finding(
        "clock",
        "notice" if abs(clock_s) < CLOCK_WARNING_S else "warning",
        f"this host's clock is {abs(clock_s):.1f} s {side} the database's; tasks go by the database's, "
        "but log lines of workers here do not",
        "synchronise the clocks (chrony, systemd-timesyncd)",
        facts,
    )


def _durable(health: HealthRow) -> Finding:
    off = [
        name
        for name, value in (("fsync", health.fsync), ("full_page_writes", health.full_page_writes))
        if value == "off"
    ]
    if off:
        return Finding(
            "durability",
            "warning",
            f"{' and '.join(off)} is off: a crash of the server can destroy the whole database",
            "turn it on in postgresql.conf, unless this is a throw-away server",
        )
    if health.synchronous_commit == "off":
        return Finding(
            "durability",
            "warning",
            "synchronous_commit is off: a crash of the server forgets the last commits, also of enqueues",
            "set synchronous_commit = on for the roles that enqueue and work",
        )
    return Finding("durability", "ok", f"commits are durable (synchronous_commit = {health.synchronous_commit})")


def _connections(health: HealthRow) -> Finding:
    facts = {"connections": health.connections, "connections_max": health.connections_max}
    message = f"{health.connections:,} of {health.connections_max:,} connections are in use"
    if health.connections >= CONNECTIONS_WARNING * health.connections_max:
        remedy = "raise max_connections, or put a pooler in front of what does not need sessions"
        return Finding("connections", "warning", message, remedy, facts)
    return Finding("connections", "ok", message, None, facts)


def _notify(health: HealthRow) -> Finding:
    facts = {"notify_queue_usage": round(health.notify_usage, 4)}
    message = f"the notification queue is {health.notify_usage:.1%} full"
    if health.notify_usage < NOTIFY_WARNING:
        return Finding("notify_queue", "ok", message, None, facts)
    return Finding(
        "notify_queue",
        "problem" if health.notify_usage >= NOTIFY_PROBLEM else "warning",
        f"{message}; when it is full, transactions that notify fail",
        "some session listens and does not read, or sits in a transaction: end it (the oldest in pg_stat_activity)",
        facts,
    )


def _statistics(health: HealthRow) -> Finding:
    off = [
        name for name, value in (("autovacuum", health.autovacuum), ("track_counts", health.track_counts))
        if value == "off"
    ]  # fmt: skip
    if off:
        message = f"{' and '.join(off)} is off: dead rows pile up and claims get slower"
        return Finding("autovacuum", "problem", message, "turn it on in postgresql.conf")
    return Finding("autovacuum", "ok", "autovacuum is on")


def of_hearing(*, hears: bool, is_pooled: bool, pooler: str) -> Iterator[Finding]:
    """Judge the self-test of LISTEN, and what lies between us and the server."""
    facts = {"hears": hears, "is_pooled": is_pooled, "pooler": pooler}
    through = "through a pooler" if is_pooled else "directly"
    if pooler == "transaction":
        if hears and not is_pooled:
            remedy = "without a transaction pooler, unset PGTASKS_POOLER: workers then wake up within milliseconds"
            yield Finding(
                "listen", "notice", "notifications arrive, and PGTASKS_POOLER says transaction", remedy, facts
            )
            return
        yield Finding("listen", "ok", "PGTASKS_POOLER is transaction: workers poll, and listen nowhere", None, facts)
        return
    if hears:
        yield Finding("listen", "ok", f"notifications arrive ({through})", None, facts)
        return
    yield Finding(
        "listen",
        "warning",
        f"a notification did not arrive within seconds ({through})",
        "behind a transaction pooler set PGTASKS_POOLER=transaction (no prepared statements, no LISTEN, no session "
        "settings), or give workers a direct DSN",
        facts,
    )


def of_direct_hearing(*, hears: bool, error: str | None = None) -> Finding:
    """Judge the self-test of LISTEN over PGTASKS_LISTEN_DSN; with the error, if nothing was reached there."""
    facts = {"hears": hears, "error": error}
    if hears:
        return Finding("listen", "ok", "notifications arrive (over PGTASKS_LISTEN_DSN)", None, facts)
    return Finding(
        "listen",
        "warning",
        f"PGTASKS_LISTEN_DSN cannot be used: {error}"
        if error is not None
        else "a notification did not arrive over PGTASKS_LISTEN_DSN within seconds",
        "it has to lead past the pooler, to the same database; until then workers only poll",
        facts,
    )


def of_preparing(*, prepares: bool, pooler: str) -> Finding:
    """Judge the self-test of prepared statements."""
    if pooler == "transaction":
        return Finding("prepared_statements", "ok", "PGTASKS_POOLER is transaction: nothing is prepared")
    if prepares:
        return Finding("prepared_statements", "ok", "prepared statements stay with their session")
    return Finding(
        "prepared_statements",
        "problem",
        "a prepared statement was lost between two uses: a transaction pooler lies in between",
        "set PGTASKS_POOLER=transaction, or let PgBouncer 1.21 or newer keep them (max_prepared_statements)",
    )


# --- The schema ---


def of_schema(diagnosis: Diagnosis, overview: Overview) -> Iterator[Finding]:
    """Judge the schema's tables and what goes on in them."""
    yield from _privileges(diagnosis)
    for table in diagnosis.tables:
        yield from _table(table)
    yield from _slots(diagnosis)
    yield from _stuck_listeners(diagnosis)
    yield from _idle(diagnosis)
    yield from _partitions(diagnosis)
    yield from _losses(diagnosis)
    yield from _of_status(overview)


def of_missing_right(username: str, said: str) -> Finding:
    """Judge that a role may not look at the schema, with the first line of what the server said."""
    message = f"role {_brief(username)} may not look at the schema: {said.partition(chr(10))[0]}"
    remedy = f"{rights.remedy('reader', username)}, or connect as a role that may read"
    return Finding("privileges", "problem", message, remedy)


def _privileges(diagnosis: Diagnosis) -> Iterator[Finding]:
    may = diagnosis.privileges
    able = [
        what
        for what, allowed in (
            ("enqueue", may.may_enqueue),
            ("work", may.may_work),
            ("migrate", may.is_owner),
        )
        if allowed
    ]
    can = f"this role can read, and {', '.join(able)}" if able else "this role can read, and neither enqueue nor work"
    remedy = None if may.may_enqueue and may.may_work else "what is missing, see docs/roles.md"
    yield Finding("privileges", "ok" if able else "notice", can, remedy, may._asdict())


def _table(table: TableRow) -> Iterator[Finding]:
    name = f"pgtasks.{table.name}"
    if table.autovacuum_off:
        yield Finding(
            "autovacuum",
            "problem",
            f"autovacuum is turned off for {name}",
            f"ALTER TABLE {name} RESET (autovacuum_enabled)",
            {"table": table.name},
        )
    if table.dead_rows > max(DEAD_ROWS_LEAST, DEAD_SHARE * table.live_rows):
        when = "never" if table.vacuumed_at is None else f"last at {table.vacuumed_at:%Y-%m-%d %H:%M}Z"
        yield Finding(
            "dead_rows",
            "warning",
            f"{name} has {table.dead_rows:,} dead rows beside {table.live_rows:,} living ones (vacuumed {when})",
            f"look for what holds back vacuum (old transactions, slots), then: VACUUM {name}",
            {"table": table.name, "dead_rows": table.dead_rows, "live_rows": table.live_rows},
        )
    if table.index_bytes > max(INDEX_BYTES_LEAST, INDEX_BYTES_PER_ROW * (table.live_rows + table.dead_rows)):
        yield Finding(
            "index_size",
            "warning",
            f"the indexes of {name} take {table.index_bytes / 2**20:,.0f} MiB for {table.live_rows:,} rows",
            f"REINDEX TABLE CONCURRENTLY {name}",
            {"table": table.name, "index_bytes": table.index_bytes},
        )
    if table.name == "tasks" and table.updates >= HOT_UPDATES_LEAST:
        yield _hot(table)


def _hot(table: TableRow) -> Finding:
    share = table.hot_updates / table.updates
    facts = {"hot_ratio": round(share, 4)}
    message = f"{share:.0%} of the updates of pgtasks.tasks touched no index"
    if share >= HOT_SHARE:
        return Finding("hot_ratio", "ok", message, None, facts)
    return Finding(
        "hot_ratio",
        "warning",
        f"{message}, fewer than claims ought to",
        "was an index added to pgtasks.tasks, or its fillfactor changed? \\d+ pgtasks.tasks shows it",
        facts,
    )


def _slots(diagnosis: Diagnosis) -> Iterator[Finding]:
    for slot in diagnosis.slots:
        held = slot.transactions_back or 0
        if slot.active and held < SLOT_TRANSACTIONS:
            continue
        state = "is read" if slot.active else "is read by nobody"
        vacuum = f"vacuum by {held:,} transactions and " if slot.transactions_back is not None else ""
        yield Finding(
            "replication_slot",
            "warning",
            f"replication slot {_brief(slot.name)} {state} and holds back {vacuum}{slot.wal_held or 'no'} of WAL",
            f"bring its reader back, or: SELECT pg_drop_replication_slot('{_brief(slot.name)}')",
            {"slot": slot.name, "active": slot.active, "transactions_back": held},
        )


def _stuck_listeners(diagnosis: Diagnosis) -> Iterator[Finding]:
    for one in diagnosis.listeners:
        yield Finding(
            "stuck_session",
            "warning",
            f"session {one.pid} ({_brief(one.application or 'no application name')}) has not read for "
            f"{age(one.stuck_s)} what the server sends it, and holds back vacuum",
            f"its process stands still: wake it up, or SELECT pg_terminate_backend({one.pid})",
            {"pid": one.pid},
        )


def _idle(diagnosis: Diagnosis) -> Iterator[Finding]:
    for one in diagnosis.idle:
        who = f"{_brief(one.username or 'unknown user')}, {_brief(one.application or 'no application name')}"
        yield Finding(
            "old_transaction",
            "warning",
            f"the transaction of pid {one.pid} ({who}) has been open for {age(one.age_s)} without doing anything; "
            "migrations and the pruning of history wait for its locks",
            f"end it, or SELECT pg_terminate_backend({one.pid})",
            {"pid": one.pid, "age_s": round(one.age_s, 3)},
        )


def _partitions(diagnosis: Diagnosis) -> Iterator[Finding]:
    if diagnosis.partitions_missing:
        names = ", ".join(diagnosis.partitions_missing)
        remedy = "SELECT pgtasks.create_partitions(); a running worker does it too"
        facts = {"partitions": diagnosis.partitions_missing}
        yield Finding("partitions", "warning", f"partitions of today or tomorrow are missing: {names}", remedy, facts)
    else:
        yield Finding("partitions", "ok", "the partitions of today and tomorrow are there")


def _losses(diagnosis: Diagnosis) -> Iterator[Finding]:
    if diagnosis.lost.lost:
        most = _brief(diagnosis.lost.most or "")
        yield Finding(
            "worker_lost",
            "warning",
            f"{diagnosis.lost.lost:,} attempts of the last hour ended with the loss of their worker, most of {most}",
            "were workers killed (out of memory, deployments without grace)? See the attempts: pgtasks tasks show ID",
            {"attempts": diagnosis.lost.lost, "name": diagnosis.lost.most},
        )
    else:
        yield Finding("worker_lost", "ok", "no worker was lost in the last hour")


def _of_status(overview: Overview) -> Iterator[Finding]:
    """Take over what `status` warns about; its messages name the remedy after a dash."""
    warnings = warnings_of(overview)
    for warned in warnings:
        message, _, remedy = warned.message.rpartition(" — ")
        level: Level = "notice" if warned.kind in _NOTICES else "warning"
        yield Finding(warned.kind, level, message or warned.message, remedy if message else None, warned.facts)
    if not warnings:
        yield Finding("queues", "ok", "every queue with waiting tasks is served, and nothing old holds back vacuum")


def _brief(name: str) -> str:
    return shortened(name, 60)
