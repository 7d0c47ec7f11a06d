"""Which server a connection leads to, and whether that is still the one from before.

After a failover the old primary may come back and take writes as well. A connection string with
several hosts then leads to whichever stands first. Nobody can see that from one connection; but
a worker that was on a later timeline, or on another cluster, a moment ago knows more.
"""

from __future__ import annotations

from typing import NamedTuple

from pgtasks.errors import DatabaseError
from pgtasks.store.session import AsyncConnection, Statement, afetch_all
from pgtasks.store.sql_files import sql


class Identity(NamedTuple):
    """A cluster's identifier, which its standbys share, and its timeline; None where a role may not see it."""

    system: str | None
    timeline: int | None


async def identify(connection: AsyncConnection) -> Identity:
    """Ask which server this is; raises DatabaseUnavailable only when the connection broke over it."""
    try:
        return (await afetch_all(connection, Statement(sql("server_identify"), {}, Identity)))[0]
    except DatabaseError:
        if connection.closed:
            raise
        return Identity(None, None)


def strangeness(before: Identity, now: Identity) -> str | None:
    """Say what is wrong with coming to this server after that one, None if nothing is."""
    if before.system is not None and now.system is not None and before.system != now.system:
        return f"another cluster than before: system identifier {now.system} after {before.system}"
    if before.timeline is not None and now.timeline is not None and now.timeline < before.timeline:
        return f"an older timeline than before: {now.timeline} after {before.timeline}"
    return None
