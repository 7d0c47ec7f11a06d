"""An app whose handlers run in child processes, and do there what no worker would survive."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pgtasks import App, Cancel, Context, PermanentError, Retry, RetryLater, Snooze
from pgtasks.outcome import Outcome
from tests.apps.tasks import ERRORS, RESULTS

IS_CHILD = any("pgtasks.cli.child" in argument for argument in sys.orig_argv)
BROKEN = os.environ.get("PGTASKS_TEST_BROKEN")
if IS_CHILD and BROKEN and Path(BROKEN).exists():
    raise RuntimeError("this app cannot be imported in a child")

app = App(retry=Retry(max_attempts=2, base=0.02, cap=0.05))
SEEN: list[str] = []


@app.before_task
def see(context: Context) -> None:
    """Note that a task begins in this process; refuse the one that asks for it."""
    SEEN.append(f"before {context.name}")
    if context.headers.get("refuse"):
        raise PermanentError("refused by a hook")


@app.after_task
def see_end(context: Context, outcome: Outcome) -> None:
    """Note how an attempt ended, in this process and, if asked, in a file."""
    SEEN.append(type(outcome).__name__)
    path = context.headers.get("hooked")
    if path:
        Path(path).write_text(f"{type(outcome).__name__} {os.getpid()}", encoding="utf-8")


@app.task(executor="process")
def pid() -> int:
    """Give this process's number."""
    return os.getpid()


@app.task
def pid_of_worker() -> int:
    """Give the worker's number, unless it is a suspect's."""
    return os.getpid()


@app.task(executor="process")
def seen() -> list[str]:
    """Give what the hooks noted in this process."""
    return SEEN


@app.task(executor="process")
def echo(value: Any) -> Any:
    """Give back what was passed."""
    return value


@app.task(executor="process")
async def aecho(value: Any) -> Any:
    """Give back what was passed, on the loop."""
    await asyncio.sleep(0)
    return value


@app.task(executor="process")
def raises(error: str) -> NoReturn:
    """Raise one of the errors."""
    made = ERRORS[error]()
    raise made


@app.task(executor="process")
async def araises(error: str) -> NoReturn:
    """Raise one of the errors on the loop."""
    made = ERRORS[error]()
    raise made


STEERS: dict[str, Callable[[], Exception]] = {
    "snooze": lambda: Snooze(3),
    "later": lambda: RetryLater(4, "not yet"),
    "cancel": lambda: Cancel("no longer wanted"),
    "permanent": lambda: PermanentError("for good"),
}


@app.task(executor="process")
def steers(how: str) -> NoReturn:
    """Say what is to become of the task."""
    made = STEERS[how]()
    raise made


@app.task(executor="process")
def returns(result: str) -> Any:
    """Return one of the odd results."""
    return RESULTS[result]()


@app.task(executor="process")
def exits(code: int) -> NoReturn:
    """End the process without a word."""
    os._exit(code)


@app.task(executor="process")
async def aexits(code: int) -> NoReturn:
    """End the process without a word, from the loop."""
    os._exit(code)


@app.task(executor="process")
def sys_exits(code: int) -> NoReturn:
    """Ask Python to end the process."""
    sys.exit(code)


@app.task(executor="process")
def killed(number: int) -> None:
    """Be killed by a signal."""
    os.kill(os.getpid(), number)


@app.task(executor="process")
def segfaults() -> None:
    """Read from where nothing is."""
    ctypes.string_at(0)


@app.task(executor="process")
def hogs(mib: int) -> int:
    """Use that much memory."""
    return len(bytearray(mib * 1024 * 1024))


@app.task(executor="process", max_attempts=1)
def sleeps_in_c(path: str) -> None:
    """Sleep for ever in C code that keeps the interpreter to itself."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    ctypes.PyDLL(None).sleep(1_000_000)


@app.task(executor="process")
def sleeps(path: str) -> None:
    """Sleep, and write down that it was interrupted."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    try:
        time.sleep(60)  # stands for work that never asks
    finally:
        Path(path).write_text("cleaned up", encoding="utf-8")


@app.task(executor="process")
def spins(path: str) -> None:
    """Keep the processor busy, and write down that it was interrupted."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    try:
        while True:
            pass
    finally:
        Path(path).write_text("cleaned up", encoding="utf-8")


@app.task(executor="process")
async def asleeps(path: str) -> None:
    """Sleep on the loop, and write down that it was cancelled."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")  # noqa: ASYNC240 - nothing else runs on this loop
    try:
        await asyncio.sleep(60)
    finally:
        Path(path).write_text("cleaned up", encoding="utf-8")  # noqa: ASYNC240 - nothing else runs on this loop


@app.task(executor="process")
def defies(path: str) -> NoReturn:
    """Swallow every interruption."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)  # stands for work that never asks


@app.task(executor="process")
def waits(context: Context, path: str) -> None:
    """Wait as a cooperative handler does, and write down what it learned."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    try:
        context.wait_cancelled(60)
    finally:
        Path(path).write_text(f"cancelled={context.cancelled} lost={context.lease_lost}", encoding="utf-8")


@app.task(executor="process")
def starts_a_program(path: str) -> None:
    """Wait for a program of its own, and swallow every interruption."""
    with contextlib.suppress(BaseException):
        program = subprocess.Popen(["sleep", "600"])
        Path(path).write_text(str(program.pid), encoding="utf-8")
        ctypes.PyDLL(None).sleep(1_000_000)


@app.task(executor="process")
def waits_for(path: str) -> int:
    """Wait until a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)  # stands for work
    return os.getpid()


@app.task(executor="process")
def tells(context: Context) -> dict[str, Any]:
    """Give what the context says, and log a line."""
    context.logger.info("telling\nit", extra={"more": 1})
    logging.getLogger("shop").warning("a line of the shop")
    return {
        "task_id": context.task_id,
        "queue": context.queue,
        "attempt": context.attempt,
        "max_attempts": context.max_attempts,
        "lease_id": context.lease_id,
        "run_at": str(context.run_at),
        "headers": context.headers,
        "fire_time": str(context.fire_time),
        "remaining_s": context.remaining_s(),
        "cancelled": context.cancelled,
        "lease_lost": context.lease_lost,
    }


@app.task(executor="process")
def prints(text: str) -> str:
    """Print to both standard streams, and read from the third."""
    sys.stdout.write(text + "\n")
    sys.stderr.write(text + "\n")
    os.write(1, b"\x00\x00\x00\x05hello\n")
    return sys.stdin.read()


@app.task(executor="process")
def descriptors() -> dict[str, str]:
    """Give the open descriptors of this process and what they are."""
    folder = Path("/proc/self/fd")
    found = {}
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):
            found[entry.name] = str(entry.readlink())
    return found


@app.task(executor="process")
def ignores_sigterm() -> int:
    """Be asked to end by somebody else than the worker, and ask a program of one's own."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(os.getpid(), number)
        time.sleep(0.01)  # stands for work, between whose steps signals arrive
    program = subprocess.Popen(["sleep", "600"])
    program.terminate()
    return program.wait()


@app.task(executor="process")
def replaces_sigterm() -> None:
    """Leave a handler of its own for the signal by which tasks are stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@app.task(executor="process")
def says(messages: list[str], exits_with: int | None = None) -> None:
    """Write to the socket that belongs to the program around this, and end the process or go on."""
    channel = int(sys.argv[sys.argv.index("--fd") + 1])
    for message in messages:
        body = message.encode()
        os.write(channel, len(body).to_bytes(4, "big") + body)
    if exits_with is not None:
        os._exit(exits_with)
    time.sleep(60)  # stands for work


@app.task(executor="process")
def forks() -> int:
    """Fork, and let what was forked return as well."""
    return os.fork()


@app.task(executor="process")
def dies_later(seconds: float) -> None:
    """Leave a thread that ends the process after the task."""
    threading.Timer(seconds, os._exit, (4,)).start()


@app.task(executor="process")
def leaves_a_thread() -> int:
    """Leave a thread that Python would wait for."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    return os.getpid()
