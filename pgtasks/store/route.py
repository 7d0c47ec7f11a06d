"""What the connections of one process know together: whether the server they lead to is the right one.

After a failover some connections of a worker may break while others seem well and lead to a
server that is none any more: a demoted primary still takes LISTEN, NOTIFY and every read. Only
the part that writes meets the error. So whichever connection meets one that speaks of its
server (``session.is_about_route``) tells the others here, and each of them is opened again
before its next statement; the listening session, which has none, at once.

Generations keep five connections that break together from chasing each other: what a connection
of an older generation met has been acted upon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Route:
    """The way to the server, taken anew by all connections together; used from several threads."""

    def __init__(self) -> None:
        self.generation = 0
        self._lock = threading.Lock()
        self._on_left: list[Callable[[], None]] = []

    def on_left(self, call: Callable[[], None]) -> None:
        """Have something called, in whatever thread, when the present connections are to be left."""
        self._on_left.append(call)

    def leave(self, generation: int) -> None:
        """Leave the connections of a generation, unless that was done already."""
        with self._lock:
            if generation != self.generation:
                return
            self.generation += 1
        for call in self._on_left:
            call()
