"""An app whose handlers take some milliseconds and no CPU: `async_10ms`, `sync_10ms` and so on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

from pgtasks import App

DURATIONS_MS = (1, 10, 100)
app = App()


def _async(seconds: float) -> Callable[[], Coroutine[None, None, None]]:
    async def sleep() -> None:
        await asyncio.sleep(seconds)

    return sleep


def _sync(seconds: float) -> Callable[[], None]:
    def sleep() -> None:
        time.sleep(seconds)

    return sleep


for _duration_ms in DURATIONS_MS:
    app.task(name=f"async_{_duration_ms}ms")(_async(_duration_ms / 1000))
    app.task(name=f"sync_{_duration_ms}ms")(_sync(_duration_ms / 1000))
