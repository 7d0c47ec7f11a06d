"""Whether what needs a session of its own works through a connection string: LISTEN, prepared statements."""

from __future__ import annotations

import secrets

from psycopg import errors, sql

from pgtasks.store.session import connect, translated

WAIT_S = 2.0
# Two sessions that take turns get the same server process from a transaction pooler sooner or later.
TURNS = 4
_LOST = (errors.DuplicatePreparedStatement, errors.InvalidSqlStatementName)


def hears(dsn: str, *, pooler: str, listen_dsn: str | None = None, wait_s: float | None = None) -> bool:
    """Listen on one connection, notify on another, and tell whether it arrived; raises DatabaseUnavailable.

    Through a transaction pooler it does not: the session that listens is not kept. With ``listen_dsn``
    that is the one which leads to it past the pooler.
    """
    direct, kind = (dsn, pooler) if listen_dsn is None else (listen_dsn, "none")
    channel = sql.Identifier(f"pgtasks_doctor_{secrets.token_hex(8)}")
    with (
        connect(direct, "cli", pooler=kind) as listening,
        connect(dsn, "cli", pooler=pooler) as sending,
        translated(dsn),
    ):
        listening.execute(sql.SQL("LISTEN {}").format(channel))
        sending.execute(sql.SQL("NOTIFY {}").format(channel))
        return any(True for _ in listening.notifies(timeout=WAIT_S if wait_s is None else wait_s, stop_after=1))


def prepares(dsn: str) -> bool:
    """Prepare the same statement on two sessions in turn, and tell whether both kept it; raises DatabaseUnavailable."""
    with connect(dsn, "cli") as one, connect(dsn, "cli") as other, translated(dsn):
        try:
            for turn in range(TURNS):
                for session in (one, other):
                    session.execute("SELECT %s::integer", (turn,), prepare=True)
        except _LOST:
            return False
    return True
