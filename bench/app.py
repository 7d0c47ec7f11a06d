"""The app that the measured worker runs: a task that does nothing, with every default left on."""

from __future__ import annotations

from pgtasks import App

app = App()


@app.task
async def noop() -> None:
    """Do nothing, so that all that is measured is ours."""
