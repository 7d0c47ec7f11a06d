"""An app whose tasks do nothing, at once or at the second start."""

from pgtasks import App, Context, Retry

app = App(retry=Retry(max_attempts=3, base=0.0, cap=0.0))


@app.task
async def noop() -> None:
    """Do nothing."""


@app.task
async def fail_once(context: Context) -> None:
    """Fail at the first start."""
    if context.attempt == 1:
        raise RuntimeError
