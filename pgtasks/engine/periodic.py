"""The loop, written once: a service is a function that does one round and says when to come back.

A round that fails is tried again with exponential backoff and full jitter, for ever: no
trouble with the database, and no bug in one part, ends a part while the worker lives. A
CancelledError that nobody sent to the part is such a failure too. What else ends a part
(SystemExit, say) ends the task in which it runs, and the worker watches those.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from pgtasks import events
from pgtasks.errors import DatabaseError, DatabaseUnavailable

BACKOFF_S_MIN = 0.1
# Together with the time a new connection takes, every part is back within five seconds.
BACKOFF_S_MAX = 4.0
Round = Callable[[], Awaitable[float]]


class Signal(asyncio.Event):
    """An event of which several can be waited for at once, without a task for each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        """Set it, and end every wait for it."""
        super().set()
        for wait in self.waits:
            _end(wait)


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)


class Backoff:
    """The delays between tries of one service: doubling up to a cap, drawn from their upper half."""

    def __init__(self, rng: random.Random, delay_s_max: float = BACKOFF_S_MAX) -> None:
        self._rng = rng
        self._delay_s_max = min(delay_s_max, BACKOFF_S_MAX)
        self.failures = 0

    def next_s(self) -> float:
        """Count a failure and give the seconds to wait."""
        bound = min(self._delay_s_max, BACKOFF_S_MIN * 2.0 ** min(self.failures, 16))
        self.failures += 1
        return bound * (0.5 + self._rng.random() / 2)

    def reset(self) -> None:
        """Forget the failures."""
        self.failures = 0


async def repeat(
    name: str,
    do_round: Round,
    *,
    stop: Signal,
    rng: random.Random,
    wake: Signal | None = None,
    delay_s_max: float = BACKOFF_S_MAX,
) -> None:
    """Run a service's rounds until ``stop`` is set; ``wake`` ends a wait between rounds early.

    ``delay_s_max`` is the longest wait after a round that failed.
    """
    backoff = Backoff(rng, delay_s_max)
    while not stop.is_set():
        try:
            delay_s = await do_round()
        except (Exception, asyncio.CancelledError) as error:
            # A part of the worker must outlive any fault of a round.
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            delay_s = backoff.next_s()
            _report(name, error, backoff.failures, delay_s)
            await wait_for_any(delay_s, stop)
            continue
        if backoff.failures:
            events.info("part recovered", part=name, failures=backoff.failures)
            backoff.reset()
        if delay_s > 0:
            await wait_for_any(delay_s, stop, *([wake] if wake else []))
        if wake is not None:
            wake.clear()


def _is_cancelled() -> bool:
    """Tell whether somebody cancelled this very task."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _report(name: str, error: BaseException, failures: int, delay_s: float) -> None:
    """Say the first failure at once, with its traceback, later ones only when their count doubles."""
    events.debug("round failed", part=name, error=type(error).__name__, database=isinstance(error, DatabaseError))
    if failures & (failures - 1):
        return
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    facts = {"part": name, "error": first_line, "failures": failures, "retry_in_s": round(delay_s, 2)}
    if isinstance(error, DatabaseUnavailable):
        events.warning("database unavailable", **facts)
    else:
        events.LOGGER.error("part failed", exc_info=error if failures == 1 else None, extra={"pgtasks": facts})


async def wait_for_any(timeout_s: float, *wanted: Signal) -> None:
    """Wait until one of the signals is set, or for the timeout."""
    if any(signal.is_set() for signal in wanted):
        return
    loop = asyncio.get_running_loop()
    wait = loop.create_future()
    timer = loop.call_later(timeout_s, _end, wait)
    for signal in wanted:
        signal.waits.add(wait)
    try:
        await wait
    finally:
        timer.cancel()
        for signal in wanted:
            signal.waits.discard(wait)
