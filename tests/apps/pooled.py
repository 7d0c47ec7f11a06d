"""An app that does everything which reaches the database; its DSN may lead through a pooler."""

import asyncio

from pgtasks import App, Context, Retry

app = App(retry=Retry(max_attempts=5, base=0.05, cap=0.2))


@app.task
async def echo(number: int) -> int:
    """Give the number back."""
    return number


@app.task
def parent(number: int) -> int:
    """Add a task from a thread."""
    return echo.enqueue(number).id


@app.task
async def aparent(number: int) -> int:
    """Add a task from the handlers' loop."""
    return (await echo.aenqueue(number)).id


@app.task
def flaky(context: Context) -> int:
    """Fail once."""
    if context.attempt == 1:
        raise RuntimeError("the first attempt fails")
    return context.attempt


@app.task
async def long(seconds: float) -> None:
    """Run for longer than a lease, or until it is cancelled."""
    await asyncio.sleep(seconds)


@app.cron("@every 1s", name="pooled", payload={"number": 0})
@app.task
async def tock(number: int) -> int:
    """Run once a second."""
    return number
