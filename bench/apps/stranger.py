"""The app of a worker that serves the same queue as others, and can run none of their tasks."""

from __future__ import annotations

from pgtasks import App

app = App()


@app.task
async def elsewhere() -> None:
    """Do nothing; nobody enqueues it."""
