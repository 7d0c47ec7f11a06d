"""Changes of rights on the schema, one after the other: every pod of a deployment may grant as it starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pgtasks.store.session import Statement, SyncConnection, fetch_all, translated
from pgtasks.store.sql_files import sql


@contextmanager
def turn(connection: SyncConnection) -> Iterator[None]:
    """Wait for the turn and keep it for the block, one transaction; raises DatabaseError after lock_timeout."""
    with translated(), connection.transaction():
        fetch_all(connection, Statement(sql("schema_turn")))
        yield
