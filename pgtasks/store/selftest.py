"""Whether a notification that is sent through a connection string arrives through it."""

from __future__ import annotations

import secrets

from psycopg import sql

from pgtasks.store.session import connect, translated

WAIT_S = 2.0


def hears(dsn: str, *, pooler: str, wait_s: float = WAIT_S) -> bool:
    """Listen on one connection, notify on another, and tell whether it arrived; raises DatabaseUnavailable.

    Through a transaction pooler it does not: the session that listens is not kept.
    """
    channel = sql.Identifier(f"pgtasks_doctor_{secrets.token_hex(8)}")
    with (
        connect(dsn, "cli", pooler=pooler) as listening,
        connect(dsn, "cli", pooler=pooler) as sending,
        translated(dsn),
    ):
        listening.execute(sql.SQL("LISTEN {}").format(channel))
        sending.execute(sql.SQL("NOTIFY {}").format(channel))
        return any(True for _ in listening.notifies(timeout=wait_s, stop_after=1))
