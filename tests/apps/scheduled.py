"""An app with a schedule; it notes what its handler learns of the slot."""

from pgtasks import App, Context

app = App()


@app.cron("@every 1s", name="ticks", payload={"word": "tick"}, overlap="skip", queue="default")
@app.cron("0 0 1 1 *", name="new year", timezone="Asia/Tokyo", payload={"word": "year"}, jitter="1h")
@app.task
def note(context: Context, word: str) -> dict[str, str | None]:
    """Give back the schedule, the slot and the payload."""
    slot = context.fire_time
    return {"schedule": context.schedule, "slot": None if slot is None else slot.isoformat(), "word": word}
