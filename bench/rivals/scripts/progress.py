"""What a rival's script says about its progress, as JSON lines. Standard library only.

It runs in the rival's environment, beside the script that imports it (`from progress import Meter`).
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable


def say(event: str, **facts: object) -> None:
    """Print one event; whoever measures waits for it."""
    print(json.dumps({"event": event, **facts}), flush=True)


class Meter:
    """Counts handlers; `tick` is all that a handler does."""

    def __init__(self, tasks: int, on_last: Callable[[], None]) -> None:
        self.tasks, self.done = tasks, 0
        self._on_last = on_last

    def tick(self, _task: object = None) -> None:
        """Count one handler."""
        self.done += 1
        if self.done == 1:
            say("first", at=time.time())
        if self.done == self.tasks:
            say("last", at=time.time(), tasks=self.done)
            self._on_last()

    def stopped(self) -> None:
        """Say that everything that ran is acknowledged."""
        say("stopped", at=time.time(), tasks=self.done)


def on_sigterm(stop: Callable[[], None]) -> None:
    """Stop on a SIGTERM, in a running event loop."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
