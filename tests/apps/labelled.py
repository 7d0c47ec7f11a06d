"""An app that names its deployment, and has one schedule."""

from pgtasks import App

app = App(deployment="shop")


@app.cron("0 0 1 1 *", name="kept")
@app.task
def note() -> None:
    """Do nothing."""
