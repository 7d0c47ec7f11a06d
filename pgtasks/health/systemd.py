"""What a service tells systemd, by the protocol of sd_notify(3), written by hand.

A datagram of ``NAME=value`` lines goes to the unix socket that NOTIFY_SOCKET names; a name that
begins with @ is one of Linux's abstract sockets. Nobody answers, and nothing here fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping
from typing import Self

SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
STATUS_CHARACTERS_MAX = 200


class Systemd:
    """The service manager, if there is one that wants to hear."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        """``watchdog_s`` is how long it waits for a sign of life before it kills us, 0 for ever."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Self:
        """Take it out of the environment, so that no program that a handler runs speaks for us."""
        address = environ.pop(SOCKET, "")
        usec, pid = environ.pop(WATCHDOG_USEC, ""), environ.pop(WATCHDOG_PID, "")
        if not address.startswith(("/", "@")):
            return cls()
        ours = not pid or pid == str(os.getpid())
        return cls(address, int(usec) / 1e6 if ours and usec.isascii() and usec.isdigit() else 0.0)

    @property
    def listens(self) -> bool:
        """Whether there is one."""
        return bool(self._address)

    def tell(self, **states: str) -> None:
        """Tell it some states: ``READY="1"``, ``STOPPING="1"``, ``WATCHDOG="1"``, ``STATUS="…"``."""
        if not self._address:
            return
        lines = (f"{name}={' '.join(text.split())[:STATUS_CHARACTERS_MAX]}" for name, text in states.items())
        message = "\n".join(lines).encode("utf-8", "replace")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(0.0)
            line.sendto(message, self._address)
