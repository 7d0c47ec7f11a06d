"""An app whose handler notes when it started, and does nothing else."""

from __future__ import annotations

import os

from bench import stamps
from pgtasks import App

app = App()
_note = stamps.writer(os.environ[stamps.FILE])


@app.task
async def stamp(number: int) -> None:
    """Note the time."""
    _note(number)
