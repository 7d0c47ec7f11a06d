"""An app with a task that leaves no history."""

from pgtasks import App, PermanentError

app = App()


@app.task(keep_result=False)
def forgotten(*, fail: bool = False) -> str:
    """Give something that nobody will see, or fail for good."""
    if fail:
        raise PermanentError("as asked")
    return "forgotten"


@app.task
def kept() -> str:
    """Give something that stays."""
    return "kept"
