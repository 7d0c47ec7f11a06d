"""An app whose handlers end in every way that a handler can end; its DSN is PGTASKS_DSN."""

import asyncio
import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import psycopg

from pgtasks import App, Cancel, Context, LeaseLost, PermanentError, Retry, RetryLater, Snooze
from pgtasks.outcome import Dead, Outcome
from pgtasks.payload import storable

app = App(retry=Retry(max_attempts=3, base=0.02, cap=0.05))


@functools.cache
def notebook() -> psycopg.Connection[Any]:
    """Return this process's connection for notes; psycopg lets one thread at a time use it."""
    return psycopg.connect(os.environ["PGTASKS_DSN"], autocommit=True)


def note(context: Context, word: str = "") -> None:
    """Commit a line about a run to `notes`."""
    notebook().execute(
        "INSERT INTO public.notes (task_id, name, attempt, last, word) VALUES (%s, %s, %s, %s, %s)",
        (context.task_id, context.name, context.attempt, context.is_last_attempt, storable(word, 100)),
    )


@app.after_task
def note_the_dead(context: Context, outcome: Outcome) -> None:
    """Stand for the hook that alerts somebody."""
    if isinstance(outcome, Dead):
        note(context, f"dead: {outcome.reason}")


@app.task
def fine(context: Context, word: str = "fine") -> str:
    """End well."""
    note(context, word)
    return word


@app.task
async def nothing() -> None:
    """End well at once."""


@app.task
def always_fails(context: Context) -> NoReturn:
    """Fail each time."""
    note(context)
    raise RuntimeError("always")


@app.task
def permanent(context: Context) -> NoReturn:
    """Fail for good."""
    note(context)
    raise PermanentError("for good")


@app.task(max_attempts=2)
def later(context: Context, delay: float) -> None:
    """Ask for a certain delay after the first attempt."""
    note(context)
    if context.attempt == 1:
        raise RetryLater(delay, "not yet")


@app.task(max_attempts=1)
def snoozes(context: Context, times: int) -> None:
    """Snooze until that many runs were noted."""
    note(context)
    row = notebook().execute("SELECT count(*) FROM public.notes WHERE task_id = %s", (context.task_id,)).fetchone()
    if row is not None and row[0] <= times:
        raise Snooze(0.001)


@app.task
def cancels(context: Context, reason: str) -> NoReturn:
    """Finish as cancelled."""
    note(context)
    raise Cancel(reason)


class Unprintable(Exception):
    """An error whose message cannot be asked for, and which cannot be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise SystemExit("no message")


class BareSnooze(Snooze):
    """A steering exception that forgot its delay."""

    def __init__(self) -> None:
        Exception.__init__(self)


class OddCancel(Cancel):
    """A steering exception whose reason is no text."""

    def __init__(self) -> None:
        super().__init__()
        self.reason: Any = {"\x00": "\udce9"}


def chained(depth: int) -> BaseException:
    """Return an error with that many causes."""
    error: BaseException = ValueError("the first")
    for number in range(depth):
        error, cause = ValueError(f"number {number}"), error
        error.__cause__ = cause
    return error


def recurse() -> NoReturn:
    """Run out of stack."""
    recurse()
    raise AssertionError


ERRORS: dict[str, Callable[[], BaseException]] = {
    "SystemExit": functools.partial(SystemExit, 3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several", [SystemExit(1), KeyboardInterrupt()]),
    "StopIteration": lambda: StopIteration("stopped"),
    "StopAsyncIteration": StopAsyncIteration,
    "LeaseLost": lambda: LeaseLost("not really"),
    "BareSnooze": BareSnooze,
    "nul": lambda: ValueError("a\x00b"),
    "surrogate": lambda: ValueError("caf\udce9"),
    "backslash": lambda: ValueError("a\\u0000b"),
    "large": lambda: ValueError("x" * 10_000_000),
    "bytes": lambda: ValueError(b"\x00\xff"),
    "right to left": lambda: ValueError("\u202egnihtemos 😀 \x1b[2J\nsecond line"),
    "Unprintable": Unprintable,
    "chain": functools.partial(chained, 1000),
    "empty": ValueError,
}


@app.task(max_attempts=2)
def raises(context: Context, error: str) -> NoReturn:
    """Raise one of the errors."""
    note(context, error)
    if error == "RecursionError":
        recurse()
    made = ERRORS[error]()
    raise made


@app.task(max_attempts=2)
async def araises(context: Context, error: str) -> NoReturn:
    """Raise one of the errors on the loop."""
    note(context, error)
    await asyncio.sleep(0)
    if error == "RecursionError":
        recurse()
    made = ERRORS[error]()
    raise made


@app.task
def odd_cancel() -> NoReturn:
    """Finish as cancelled, for a reason that no text column takes."""
    raise OddCancel


def endless() -> list[Any]:
    """Return a list that contains itself."""
    found: list[Any] = []
    found.append(found)
    return found


class Hostile:
    """A result that refuses to be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)


RESULTS: dict[str, Callable[[], Any]] = {
    "object": object,
    "set": lambda: {1},
    "bytes": lambda: b"x",
    "NaN": lambda: float("nan"),
    "NUL": lambda: {"a": "\x00"},
    "surrogate": lambda: ["\udce9"],
    "number": lambda: 10**5000,
    "large": lambda: "x" * 5_000_000,
    "endless": endless,
    "generator": lambda: (number for number in range(3)),
    "Hostile": Hostile,
    "number as key": lambda: {1: 2},
    "coroutine": functools.partial(asyncio.sleep, 0),
}


@app.task
def returns(context: Context, result: str) -> Any:
    """Return one of the results."""
    note(context, result)
    return RESULTS[result]()


@app.task
async def areturns(context: Context, result: str) -> Any:
    """Return one of the results on the loop."""
    note(context, result)
    return RESULTS[result]()


@app.task
async def holds(context: Context, seconds: float) -> None:
    """Wait on the loop."""
    note(context, "begun")
    await asyncio.sleep(seconds)
    note(context, "ended")


@app.task
def holds_sync(context: Context, seconds: float) -> None:
    """Wait in a thread, until told to stop."""
    note(context, "begun")
    if context.wait_cancelled(seconds):
        note(context, "stopped")
    context.raise_if_cancelled()
    note(context, "ended")


@app.task(max_attempts=2)
async def fails_when_stopped(context: Context) -> None:
    """Turn a cancellation into an error of its own, as some libraries do."""
    note(context, "begun")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise RuntimeError("the connection was closed") from None


@app.task(timeout=0.3, max_attempts=1)
async def deaf(context: Context) -> None:
    """Swallow every cancellation."""
    note(context, "begun")
    while not os.path.exists(os.environ["PGTASKS_TEST_RELEASE"]):  # noqa: ASYNC240, PTH110 - it stands for a bad handler
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)


@app.task(timeout=0.3, max_attempts=1)
def deaf_sync(context: Context) -> None:
    """Never look at the context."""
    note(context, "begun")
    while not os.path.exists(os.environ["PGTASKS_TEST_RELEASE"]):  # noqa: PTH110 - as short as above
        time.sleep(0.05)  # stands for work that cannot be interrupted


@app.task
async def blocks(seconds: float) -> str:
    """Block the handlers' loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - stands for a handler that forgot to await
    return "done"


@app.task
async def spins(seconds: float) -> str:
    """Keep the interpreter busy on the handlers' loop."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return "done"


@app.task
async def leaves_things_behind() -> None:
    """Start a background task that ends the process, stop the loop, and leave a thread running."""

    async def ends_the_process() -> NoReturn:
        sys.exit(9)

    asyncio.get_running_loop().stop()
    _left.append(asyncio.create_task(ends_the_process()))


@app.task
async def waits_for_a_thread(seconds: float) -> None:
    """Wait for a thread that Python in turn waits for when it ends."""
    await asyncio.to_thread(time.sleep, seconds)


@app.task
async def waits(seconds: float) -> None:
    """Wait on the loop without a note, for tests in which the database is away."""
    await asyncio.sleep(seconds)


def wait_for_sigterm(ready: Any, *, handled: bool) -> None:
    """Wait in a child process, with the signals as they are or with an own handler."""
    if handled:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    ready.set()
    time.sleep(60)  # stands for work


@app.task
def terminates_children() -> list[int | None]:
    """Fork two processes, terminate them, and give their exit codes."""
    fork, codes = multiprocessing.get_context("fork"), []
    for handled in (False, True):
        ready = fork.Event()
        child = fork.Process(target=wait_for_sigterm, args=(ready,), kwargs={"handled": handled})
        child.start()
        ready.wait(5)
        child.terminate()
        child.join(5)
        codes.append(child.exitcode)
    return codes


@app.task
def adds_more(generations: int, queue: str) -> None:
    """Add a task like itself, as many generations as asked."""
    if generations:
        adds_more.using(queue=queue).enqueue(generations - 1, queue)


_left: list[object] = []

NOTES = """
CREATE TABLE IF NOT EXISTS public.notes (
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    task_id bigint NOT NULL,
    name text NOT NULL,
    attempt integer NOT NULL,
    last boolean NOT NULL,
    word text NOT NULL
);
TRUNCATE public.notes
"""


@app.task
def obeys(context: Context) -> str:
    """Work until told to stop, then return, as a loop over ``cancelled`` does."""
    note(context, "begun")
    while not context.wait_cancelled(0.05):
        pass
    return "stopped half-way"
