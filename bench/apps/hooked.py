"""The app of the scenario that measures what features cost, with a hook before each task and one after it."""

from __future__ import annotations

from bench.apps.features import app
from pgtasks import Context
from pgtasks.outcome import Outcome


@app.before_task
def before(context: Context) -> None:
    """Do nothing before a task."""


@app.after_task
def after(context: Context, outcome: Outcome) -> None:
    """Do nothing after a task."""
