"""The app of the scenarios in which tasks fail: with every default left on but the delays of retries."""

from __future__ import annotations

from pgtasks import App, Context, Retry

app = App()


class AwayError(Exception):
    """Somebody else does not answer, as happens."""


@app.task
async def noop() -> None:
    """Do nothing."""


@app.task
async def steady(context: Context) -> None:
    """Do what `flaky` does, and never fail."""
    if context.attempt == 0:
        raise AwayError("it is away")


@app.task(retry=Retry(base=0))
async def flaky(context: Context) -> None:
    """Fail the first time, and be tried again at once (10 ms later, which is the least)."""
    if context.attempt == 1:
        raise AwayError("it is away")


@app.task(retry=Retry(max_attempts=2, base=0))
async def doomed() -> None:
    """Fail until there are no attempts left."""
    raise AwayError("it is away for good")
