"""A worker's side of its supervisor: the id it was given, and the line between the two.

The line is one end of a pair of sockets that the worker inherits; what is at the other end is
in ``supervisor``.

- Upwards goes one JSON line, the greeting: which database this worker works on. It is sent before
  the worker can hold a lease, so the supervisor of a worker that died without one has nothing
  to give back.
- Downwards goes one byte for each signal the supervisor gets, its number. A signal that reached
  both, as init systems send them to all processes of a service, counts once (``StopSwitch``).
- The end of the stream means that the supervisor is dead: the worker drains and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import MutableMapping
from typing import NamedTuple, Self
from uuid import UUID

from pgtasks import events
from pgtasks.engine.departure import StopSwitch

# Internal, from a supervisor to the worker it starts: the line's descriptor, the worker's id, and which place it has.
VARIABLE = "_PGTASKS_SUPERVISED"
_SIGNALS_AT_ONCE = 64


class Greeting(NamedTuple):
    """What a worker says of itself: its database, and whether that is the local server."""

    dsn: str
    local: bool

    def line(self) -> bytes:
        """Give it as it goes over the line."""
        return json.dumps(self).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Read what ``line`` wrote."""
        dsn, local = json.loads(line)
        return cls(str(dsn), bool(local))


class Supervision:
    """What a supervised worker has from its supervisor."""

    def __init__(self, worker_id: UUID, line: socket.socket, place: int = 0) -> None:
        """``place`` counts the supervisor's workers, from 0."""
        self.worker_id, self.line, self.place = worker_id, line, place

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Self | None:
        """Take it out of the environment, so that no program that a handler runs finds it there.

        None in a worker that nobody supervises.
        """
        descriptor, _, rest = environ.pop(VARIABLE, "").partition(":")
        worker_id, _, place = rest.partition(":")
        try:
            number = int(place)
            found = cls(UUID(worker_id), socket.socket(fileno=int(descriptor)), number)
        except (ValueError, OSError):
            return None
        os.set_inheritable(found.line.fileno(), False)  # noqa: FBT003 - takes it by position only
        return found

    def greet(self, greeting: Greeting) -> None:
        """Tell the supervisor that this worker begins; one that is gone is noticed later."""
        with contextlib.suppress(OSError):
            self.line.sendall(greeting.line())

    def heed(self, switch: StopSwitch) -> None:
        """Stop the worker when the supervisor says so or is gone; to be called on the worker's loop."""
        self.line.settimeout(0.0)
        asyncio.get_running_loop().add_reader(self.line, self._hear, switch)

    def _hear(self, switch: StopSwitch) -> None:
        try:
            numbers = self.line.recv(_SIGNALS_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            numbers = b""
        for number in numbers:
            switch.on_signal(number, forwarded=True)
        if not numbers:
            asyncio.get_running_loop().remove_reader(self.line)
            events.warning("supervisor is gone", advice="this worker drains and ends")
            switch.asked.set()
