"""Notices when a worker comes to another server than before: a split brain, or a wrong address.

It only says so. Whether the old server or the new one is the right one, a person must decide; the
leases keep each of the two consistent in itself.
"""

from __future__ import annotations

from pgtasks import events
from pgtasks.store.identity import Identity, strangeness


class ServerWatch:
    """Told of the server by each new connection of one part."""

    def __init__(self) -> None:
        self._last: Identity | None = None

    def seen(self, now: Identity) -> None:
        """Compare a server with the one before, and warn if it should not have come after that."""
        last, self._last = self._last, now
        if last is None:
            events.debug("server", system=now.system, timeline=now.timeline)
            return
        problem = strangeness(last, now)
        if problem is not None:
            events.warning(
                "connected to a strange server",
                problem=problem,
                advice="perhaps an old primary came back beside the new one; keep writers away from one of them",
            )
        elif now.timeline != last.timeline and None not in (now.timeline, last.timeline):
            events.info("followed a failover", timeline=now.timeline, before=last.timeline)
