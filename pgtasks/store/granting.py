"""The rights of each kind of role, as GRANT statements.

Each kind gets what its part of the system does, by table, and nothing else: no kind may change
the schema, truncate a table or disable a trigger, and none but the owner may touch
``schema_version``. Default privileges are for reading alone: what is created later is above all
the next day's partition of history, which nobody but the owner may write past its parent. What a
migration adds can be written when the grants have been run again.
"""

from __future__ import annotations

from typing import Literal, LiteralString, NamedTuple

from psycopg import sql

from pgtasks.errors import ConfigError, NotFound
from pgtasks.store.session import Statement, SyncConnection, fetch_one, translated
from pgtasks.store.sql_files import sql as query

Kind = Literal["producer", "worker", "reader", "admin"]

# What a producer sets. Whoever may set state and lease_id can make a task that no worker touches.
_PRODUCER_COLUMNS: LiteralString = "name, payload, queue, priority, run_at, max_attempts, timeout, unique_key, headers"
_ENQUEUE: LiteralString = "pgtasks.enqueue, pgtasks.enqueue_task, pgtasks.enqueue_many"
_UPKEEP: LiteralString = "pgtasks.ring, pgtasks.create_partitions, pgtasks.prune"
_STEER: LiteralString = "pgtasks.cancel, pgtasks.retry, pgtasks.pause, pgtasks.resume, pgtasks.backlog"

_GRANTS: dict[Kind, tuple[LiteralString, ...]] = {
    "producer": (
        "GRANT USAGE ON SCHEMA pgtasks TO {role}",
        f"GRANT EXECUTE ON FUNCTION {_ENQUEUE} TO {{role}}",
        f"GRANT INSERT ({_PRODUCER_COLUMNS}) ON pgtasks.tasks TO {{role}}",
        "GRANT SELECT (id) ON pgtasks.tasks TO {role}",
    ),
    "worker": (
        "GRANT USAGE ON SCHEMA pgtasks TO {role}",
        "GRANT SELECT ON ALL TABLES IN SCHEMA pgtasks TO {role}",
        "GRANT INSERT, UPDATE, DELETE ON pgtasks.tasks, pgtasks.leases, pgtasks.workers TO {role}",
        "GRANT INSERT, UPDATE, DELETE ON pgtasks.schedules, pgtasks.schedule_fires TO {role}",
        "GRANT INSERT ON pgtasks.history, pgtasks.attempts TO {role}",
        "GRANT INSERT, UPDATE ON pgtasks.dead_letters, pgtasks.task_types TO {role}",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgtasks TO {role}",
        f"GRANT EXECUTE ON FUNCTION {_ENQUEUE}, {_UPKEEP} TO {{role}}",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA pgtasks GRANT SELECT ON TABLES TO {role}",
    ),
    "reader": (
        "GRANT USAGE ON SCHEMA pgtasks TO {role}",
        "GRANT SELECT ON ALL TABLES IN SCHEMA pgtasks TO {role}",
        "GRANT EXECUTE ON FUNCTION pgtasks.backlog TO {role}",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA pgtasks GRANT SELECT ON TABLES TO {role}",
    ),
    "admin": (
        "GRANT USAGE ON SCHEMA pgtasks TO {role}",
        "GRANT SELECT ON ALL TABLES IN SCHEMA pgtasks TO {role}",
        "GRANT INSERT, UPDATE, DELETE ON pgtasks.tasks, pgtasks.dead_letters, pgtasks.queues TO {role}",
        "GRANT INSERT, UPDATE, DELETE ON pgtasks.schedules, pgtasks.schedule_fires TO {role}",
        "GRANT INSERT, DELETE ON pgtasks.history, pgtasks.attempts TO {role}",
        "GRANT UPDATE, DELETE ON pgtasks.workers TO {role}",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgtasks TO {role}",
        f"GRANT EXECUTE ON FUNCTION {_ENQUEUE}, {_STEER}, {_UPKEEP} TO {{role}}",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA pgtasks GRANT SELECT ON TABLES TO {role}",
    ),
}
KINDS: tuple[Kind, ...] = tuple(_GRANTS)
_NAME_BYTES_MAX = 63


class OwnerRow(NamedTuple):
    """Who owns the schema, and whether the current role may act as its owner."""

    owner: str
    username: str
    may: bool


def script(kind: Kind, role: str) -> list[str]:
    """Give the statements that make a role one of this kind, without semicolons."""
    return [statement.as_string(None) for statement in _statements(kind, role)]


def grant(connection: SyncConnection, kind: Kind, role: str) -> None:
    """Grant a role all that its kind needs, or nothing; run again, it changes nothing.

    Raises NotFound when there is no such role and ConfigError when the current role does not
    own the schema: PostgreSQL itself would only warn and grant nothing.
    """
    with translated(), connection.transaction():
        found = fetch_one(connection, Statement(query("schema_owner"), {}, OwnerRow))
        if found is not None and not found.may:
            raise ConfigError(
                f"role {found.username} does not own the schema pgtasks and can grant nothing in it — "
                f"connect as {found.owner}, or let its owner run what --sql prints"
            )
        if not fetch_one(connection, Statement(query("server_role"), {"role": role}, bool)):
            name = sql.Identifier(role).as_string(connection)
            raise NotFound(f"there is no role {role!r} — make it first: CREATE ROLE {name} NOLOGIN")
        for statement in _statements(kind, role):
            connection.execute(statement)


def _statements(kind: Kind, role: str) -> list[sql.Composed]:
    return [sql.SQL(text).format(role=sql.Identifier(role)) for text in _GRANTS[kind]]


def check_role(role: str) -> str:
    """Give a role's name back; raises ConfigError for one that no role can have."""
    if not role or "\0" in role or len(role.encode("utf-8", "surrogatepass")) > _NAME_BYTES_MAX:
        raise ConfigError(f"a role's name has 1 to {_NAME_BYTES_MAX} bytes, got {role[:80]!r}")
    return role
