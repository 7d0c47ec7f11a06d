"""The app of the chaos suite: handlers that end in every way, and log what they do before they do it.

Each line of the log is one `os.write` to a file opened for appending, so that lines of several
processes stay whole and those of a killed process are there. CHAOS_LOG names the file. A handler's
*effect* is a line of its log, written just before it returns; its result says the same once more.
"""

import asyncio
import functools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pgtasks import App, Context, Retry, Snooze
from pgtasks.outcome import Outcome

LOG = Path(os.environ.get("CHAOS_LOG", os.devnull))
LEASE_S = float(os.environ.get("CHAOS_LEASE", "2"))
# What ends its process, and what cannot succeed at all.
POISONOUS = frozenset({"poison", "fatal"})
HOPELESS = POISONOUS | {"doomed"}
# The schedules of the suite: their names, and every how many seconds each of them fires.
PERIODS = {"each-second": 1, "other-second": 2, "third-second": 3}

app = App(retry=Retry(max_attempts=8, base=0.05, cap=0.5), timeout=60)


@functools.cache
def _file() -> int:
    return os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def note(event: str, context: Context, token: str = "", value: Any = None) -> None:
    """Append one line about an attempt."""
    line = {
        "event": event,
        "kind": context.name,
        "task_id": context.task_id,
        "lease_id": context.lease_id,
        "attempt": context.attempt,
        "token": token,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "at": time.monotonic_ns(),
        "value": value,
    }
    os.write(_file(), (json.dumps(line) + "\n").encode())


def effect(context: Context, token: str) -> dict[str, Any]:
    """Do what the task is for, and give the result that says so."""
    value = {"token": token, "task": context.task_id, "lease": context.lease_id, "pid": os.getpid()}
    note("effect", context, token, value)
    return value


def once(context: Context, word: str) -> bool:
    """Tell whether this is the first time that a task says this word, in any process."""
    marker = LOG.with_name(f"{word}-{context.task_id}")
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return False
    return True


@app.after_task
def decided(context: Context, outcome: Outcome) -> None:
    """Log what this worker believes becomes of the task; whether it was accepted is in the tables."""
    note("outcome", context, value=type(outcome).__name__)


@app.task
async def quick(context: Context, token: str) -> Any:
    """End at once."""
    note("start", context, token)
    return effect(context, token)


@app.task(queue="other")
def brief(context: Context, token: str) -> Any:
    """Work for 50 ms in a thread."""
    note("start", context, token)
    time.sleep(0.05)  # stands for work
    return effect(context, token)


@app.task(queue="other")
def steady(context: Context, token: str) -> Any:
    """Work in a thread for a good part of a lease, and never ask whether to stop."""
    note("start", context, token)
    time.sleep(LEASE_S * 0.6)  # stands for work that nothing interrupts
    return effect(context, token)


@app.task(executor="process")
def isolated(context: Context, token: str) -> Any:
    """Work in a process of its own."""
    note("start", context, token)
    time.sleep(0.2)  # stands for work
    return effect(context, token)


@app.task
async def lasting(context: Context, token: str) -> Any:
    """Work for longer than a lease lasts."""
    note("start", context, token)
    await asyncio.sleep(LEASE_S * 1.6)
    return effect(context, token)


@app.task(queue="other")
async def flaky(context: Context, token: str) -> Any:
    """Fail once, then succeed."""
    note("start", context, token)
    if once(context, "failed"):
        raise RuntimeError("the first time it fails")
    return effect(context, token)


@app.task(max_attempts=3)
def doomed(context: Context, token: str) -> NoReturn:
    """Work for 50 ms in a thread and fail, each time."""
    note("start", context, token)
    time.sleep(0.05)  # stands for work
    raise RuntimeError("it always fails")


@app.task(max_attempts=2)
async def snoozing(context: Context, token: str) -> Any:
    """Ask twice to be run later, which charges nothing; there is no attempt to spare for it."""
    note("start", context, token)
    if once(context, "snoozed") or once(context, "snoozed-again"):
        note("snooze", context, token)
        raise Snooze(0.1)
    return effect(context, token)


@app.task
async def cancellable(context: Context, token: str) -> Any:
    """Take so long that somebody may cancel it."""
    note("start", context, token)
    await asyncio.sleep(3)
    return effect(context, token)


@app.task(queue="other", max_attempts=2)
def poison(context: Context, token: str) -> NoReturn:
    """Take the whole process down."""
    end_process(context, token)


@app.task(queue="other", max_attempts=1)
def fatal(context: Context, token: str) -> NoReturn:
    """Take the whole process down, at the first and only attempt."""
    end_process(context, token)


def end_process(context: Context, token: str) -> NoReturn:
    """Exit or be killed, as many do."""
    note("start", context, token)
    if context.task_id % 2:
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # the end of the process is under way
    raise AssertionError


def _schedule(name: str, period_s: int) -> Callable[..., Any]:
    @app.cron(f"*/{period_s} * * * * *", seconds=True, name=name)
    @app.task(name=name)
    async def fired(context: Context) -> Any:
        """Be fired by a schedule."""
        note("start", context)
        return effect(context, "")

    return fired


for _name, _period_s in PERIODS.items():
    _schedule(_name, _period_s)
