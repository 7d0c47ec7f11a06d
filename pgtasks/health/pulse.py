"""The pulse: a thread that tells systemd now and then how a process is, and that it is alive while it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from pgtasks.health.systemd import Systemd

STATUS_S = 5.0
CLOSE_S = 0.5


class Pulse:
    """Tells ``status()`` when it changes, or why it is ``failing()``.

    The watchdog gets a sign of life unless the process ``hangs()``.

    A context manager, in which its thread runs, if there is somebody to tell.
    """

    def __init__(
        self,
        systemd: Systemd,
        *,
        status: Callable[[], str],
        failing: Callable[[], list[str]],
        hangs: Callable[[], list[str]],
    ) -> None:
        """Of the reasons that ``failing`` and ``hangs`` give, those of a hang are the status if there are any."""
        self._systemd, self._status, self._failing, self._hangs = systemd, status, failing, hangs
        # Three times within the watchdog's time, so that one late beat is no death.
        self._interval_s = min(STATUS_S, systemd.watchdog_s / 3) if systemd.watchdog_s else STATUS_S
        self._said = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pgtasks-pulse", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        if self._systemd.listens:
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """End."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _beat(self) -> None:
        while True:
            self.beat()
            if self._end.wait(self._interval_s):
                return

    def beat(self) -> None:
        """Tell once."""
        hangs = self._hangs()
        reasons = hangs or self._failing()
        status = "; ".join(reasons) if reasons else self._status()
        states = {}
        if status != self._said:
            states["STATUS"] = self._said = status
        if self._systemd.watchdog_s and not hangs:
            states["WATCHDOG"] = "1"
        if states:
            self._systemd.tell(**states)
