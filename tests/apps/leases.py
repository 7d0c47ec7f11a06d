"""An app whose handlers leave a trace in a file, because in its tests the database is often away."""

import asyncio
import ctypes
import os
import resource
import signal
import time
from pathlib import Path

from pgtasks import App, Context, Retry, RetryLater
from tests.trace import Trace, worker_pid

app = App(retry=Retry(max_attempts=3, base=0.05, cap=0.2))
trace = Trace(Path(os.environ["TRACE_FILE"]))


@app.task
async def tick(context: Context, seconds: float) -> int:
    """Leave a mark every 20 ms for some time, on the handlers' loop."""
    trace.mark("start", context)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            trace.mark("tick", context)
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        trace.mark("cancelled", context)
        raise
    trace.mark("end", context)
    return worker_pid()


@app.task
async def once(context: Context) -> None:
    """Go on for ever in the first attempt, and end at once in the next."""
    trace.mark("start", context)
    if context.attempt == 1:
        await asyncio.sleep(3600)


@app.task
def hold(context: Context, seconds: float) -> int:
    """Hold on in a thread, whatever anybody says."""
    trace.mark("start", context)
    time.sleep(seconds)  # stands for work that nothing interrupts
    trace.mark("end", context)
    return worker_pid()


@app.task
async def block(context: Context, seconds: float) -> None:
    """Block the handlers' loop, as an async handler must not."""
    trace.mark("start", context)
    time.sleep(seconds)  # noqa: ASYNC251 - the fault that the test is about


@app.task
def spin(context: Context, seconds: float) -> None:
    """Keep the interpreter busy in a thread."""
    trace.mark("start", context)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@app.task
def later(context: Context) -> int:
    """Ask for another attempt in a second, then succeed."""
    trace.mark("start", context)
    if context.attempt == 1:
        raise RetryLater(1.0)
    return context.attempt


def exhaust_memory() -> None:
    """Allocate up to a limit, and take no notice of it, as careless code in C does."""
    resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
    allocate = ctypes.CDLL(None).malloc
    allocate.restype = ctypes.c_void_p
    while True:
        ctypes.memset(allocate(ctypes.c_size_t(64 * 2**20)) or 0, 1, 1)


@app.task
def crash(context: Context, how: str) -> None:
    """Take the whole process down."""
    trace.mark("start", context)
    match how:
        case "exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "memory":
            exhaust_memory()
    time.sleep(60)  # the end of the process is under way
