"""An app whose handlers do every kind of thing a task can do; its DSN is PGTASKS_DSN."""

import asyncio
import os
import time
from typing import Any

import psycopg

from pgtasks import App, Context, PermanentError, Retry

app = App(retry=Retry(max_attempts=3, base=0.05, cap=0.2))

# Where handlers leave their traces: one row per start of `record`, committed at once.
RUNS = """
CREATE TABLE IF NOT EXISTS public.runs (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    pid integer NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


@app.task
def add(a: int, b: int) -> int:
    """Give the sum."""
    return a + b


@app.task
async def echo(**payload: Any) -> dict[str, Any]:
    """Give the payload back."""
    return payload


@app.task
async def sleep(seconds: float) -> None:
    """Sleep on the handlers' event loop."""
    await asyncio.sleep(seconds)


@app.task
def sleep_sync(context: Context, seconds: float) -> bool:
    """Sleep in a thread, waking early when cancelled; give whether it was."""
    return context.wait_cancelled(seconds)


@app.task
def fail(message: str = "failed as asked") -> None:
    """Fail every time."""
    raise RuntimeError(message)


@app.task
def fail_for_good(message: str = "failed for good as asked") -> None:
    """Fail in a way that no retry helps."""
    raise PermanentError(message)


@app.task
def flaky(context: Context, n: int) -> int:
    """Fail the first n attempts, then give the attempt's number."""
    if context.attempt <= n:
        raise RuntimeError(f"attempt {context.attempt} of {n} that fail")
    return context.attempt


@app.task
def exit_process(code: int = 1) -> None:
    """Take the whole worker down, as a crash of a C library does."""
    os._exit(code)


@app.task
def record(context: Context, hold_s: float = 0.0) -> int:
    """Write a row to `runs` through an own connection, then hold on for a while."""
    with psycopg.connect(os.environ["PGTASKS_DSN"], autocommit=True) as connection:
        connection.execute(
            "INSERT INTO public.runs (task_id, attempt, pid) VALUES (%s, %s, %s)",
            (context.task_id, context.attempt, os.getpid()),
        )
    if hold_s:
        time.sleep(hold_s)  # the work that this handler stands for
    return context.attempt
