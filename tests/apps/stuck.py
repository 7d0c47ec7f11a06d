"""An app whose handlers never end, in every way in which a handler can ignore that it should.

With PGTASKS_TEST_IMPATIENT set, the worker that loads it waits less long for them. With
PGTASKS_TEST_SLOW_END it takes some seconds to close its app, or its loop.
"""

import asyncio
import contextlib
import ctypes
import os
import threading
import time
from typing import NoReturn

from pgtasks import App, Context, Retry
from pgtasks.engine import executor, recycling
from tests.apps.tasks import note

app = App(retry=Retry(max_attempts=2, base=0.02, cap=0.05))

if "PGTASKS_TEST_IMPATIENT" in os.environ:
    executor.ABANDON_S, recycling.RECYCLE_S_LEAST = 0.4, 0.0


def _close_slowly() -> None:
    # Such a thread keeps a program from ending.
    threading.Thread(target=threading.Event().wait).start()
    print("closes slowly", flush=True)  # noqa: T201 - the test waits for it
    time.sleep(3)  # stands for an app that has much to close


async def _shut_down_slowly(_loop: asyncio.AbstractEventLoop, _timeout: float | None = None) -> None:
    # The engine's loop; the handlers have one of their own.
    if threading.current_thread() is threading.main_thread():
        await asyncio.to_thread(_close_slowly)


if os.environ.get("PGTASKS_TEST_SLOW_END") == "app":
    app.close = _close_slowly  # type: ignore[method-assign]  # the test's slow end
elif os.environ.get("PGTASKS_TEST_SLOW_END") == "loop":
    setattr(asyncio.BaseEventLoop, "shutdown_default_executor", _shut_down_slowly)  # noqa: B010 - mypy refuses methods


@app.task
def fine(context: Context) -> None:
    """End well."""
    note(context)


@app.task
async def afine(context: Context, seconds: float = 0.0) -> None:
    """End well on the loop."""
    note(context, "begun")
    await asyncio.sleep(seconds)
    note(context, "ended")


@app.task(timeout=0.4)
def never_ends(context: Context) -> NoReturn:
    """Wait in C, without the interpreter's lock, for something that does not come."""
    note(context, "begun")
    threading.Event().wait()
    raise AssertionError


@app.task(timeout=0.4)
async def never_yields(context: Context) -> NoReturn:
    """Block the loop."""
    note(context, "begun")
    await asyncio.sleep(0.3)
    while True:
        time.sleep(0.01)  # noqa: ASYNC251 - stands for a blocking call that does not return


@app.task(timeout=0.4)
async def swallows(context: Context) -> NoReturn:
    """Swallow every cancellation."""
    note(context, "begun")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


@app.task(max_attempts=3)
def holds_the_lock(context: Context, seconds: int) -> str:
    """Call into C without giving up the interpreter's lock: the whole process stands still."""
    note(context, "begun")
    if context.attempt == 1:
        ctypes.PyDLL(None).sleep(seconds)
    return "done"
