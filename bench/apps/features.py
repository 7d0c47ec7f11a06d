"""The app of the scenario that measures what features cost: one task for each, and the same task without it."""

from __future__ import annotations

from pgtasks import App, Context

app = App()


@app.task
async def noop() -> None:
    """Do nothing."""


@app.task(timeout=None)
async def timeless() -> None:
    """Do nothing, with no limit to its time."""


@app.task
async def informed(context: Context) -> None:
    """Do nothing, with what can be known about the task at hand."""


@app.task
async def called(number: int) -> None:
    """Do nothing with an argument."""


@app.task
async def fruitful() -> int:
    """Do nothing, with a result."""
    return 1


@app.task(keep_result=False)
async def traceless() -> None:
    """Do nothing, and leave no row in history."""


@app.task
def threaded() -> None:
    """Do nothing, in a thread."""
