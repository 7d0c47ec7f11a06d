"""The app that the demo's workers run.

A worker whose standard input is a pipe was started by the demo, which never writes to it. Its end
means that the demo is gone, however it died, and that this worker has nothing left to do.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading

from pgtasks import App, Context, PermanentError, Retry

EXIT_ABANDONED = 1
app = App(retry=Retry(max_attempts=5, base=0.5))


@app.task(name="demo.send_email")
async def send_email(to: str) -> str:
    """Stand for a short wait on another service."""
    await asyncio.sleep(0.1)
    return f"sent to {to}"


@app.task(name="demo.send_receipt")
async def send_receipt(order: int) -> str:
    """Stand for work that belongs to a row written in the same transaction."""
    await asyncio.sleep(0.1)
    return f"receipt for order {order}"


@app.task(name="demo.charge_card")
async def charge_card(context: Context, fails: int) -> str:
    """Fail a number of times, then succeed."""
    if context.attempt <= fails:
        raise ConnectionError(f"attempt {context.attempt}: the payment service is busy")
    return f"charged in attempt {context.attempt}"


@app.task(name="demo.import_file")
def import_file(path: str) -> None:
    """Fail in a way that no retry can help."""
    raise PermanentError(f"{path} is not a CSV file")


@app.task(name="demo.render_video")
async def render_video(seconds: float) -> str:
    """Stand for long work, in the middle of which its worker can be killed."""
    await asyncio.sleep(seconds)
    return f"rendered in {seconds:g} s"


@app.task(name="demo.tick")
async def tick(context: Context) -> str:
    """Stand for what a cron schedule starts; it knows which slot it is for."""
    return f"for the slot {context.fire_time}"


def _end_with_the_demo() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(EXIT_ABANDONED)


def _is_one_of_the_demos() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(0).st_mode)
    except OSError:
        return False


if _is_one_of_the_demos():
    threading.Thread(target=_end_with_the_demo, name="pgtasks-demo", daemon=True).start()
