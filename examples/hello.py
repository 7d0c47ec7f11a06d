"""A first app: run it with ``pgtasks worker examples.hello:app``."""

from __future__ import annotations

import asyncio

from pgtasks import App, Context

app = App()


@app.task
def add(a: int, b: int) -> int:
    """Add two numbers, in a thread: any ``def`` may block."""
    return a + b


@app.task
async def greet(name: str = "world") -> str:
    """Say hello, on the handlers' event loop: an ``async def`` must await, not block."""
    await asyncio.sleep(0.05)
    return f"Hello, {name}!"


@app.task(max_attempts=5)
async def flaky(context: Context, fails: int = 2) -> str:
    """Fail a number of times, then succeed: see it retried in ``pgtasks tasks show ID``."""
    if context.attempt <= fails:
        raise ConnectionError(f"attempt {context.attempt} of {context.max_attempts}: the other side is away")
    return f"done in attempt {context.attempt}"
