"""An app whose worker can be made to hang from outside, and has little patience with itself.

While the file that PGTASKS_TEST_HANG names exists, the claim loop makes no progress: it stands still, or
each claim fails when the file says so.
"""

import asyncio
import os
from pathlib import Path

from pgtasks import App
from pgtasks.engine import periodic
from pgtasks.engine.claimer import Claimer
from pgtasks.errors import DatabaseUnavailable
from pgtasks.health import judgement

app = App()
judgement.STILL_S_MIN = 1.5
judgement.SAFETY_POLLS = 1
# A part that fails is tried again well within that bound.
periodic.BACKOFF_S_MAX = 0.2
_HANG = Path(os.environ.get("PGTASKS_TEST_HANG", "/nowhere"))
_claim = Claimer._claim  # noqa: SLF001 - the failpoint goes where every claim passes


async def _hang(claimer: Claimer, *, from_head: bool = False) -> tuple[int, bool]:
    while _HANG.exists():  # noqa: ASYNC240 - stands for a loop that does not come back
        if _HANG.read_text() == "fail":  # noqa: ASYNC240 - the file is tiny and local
            raise DatabaseUnavailable("the claim fails")
        await asyncio.sleep(0.05)
    return await _claim(claimer, from_head=from_head)


Claimer._claim = _hang  # type: ignore[method-assign, assignment]  # noqa: SLF001 - as above


@app.task
def variables() -> list[str]:
    """Name what a program that a handler starts finds in its environment."""
    return sorted(os.environ)
