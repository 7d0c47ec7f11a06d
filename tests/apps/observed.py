"""An app whose hooks and handlers tell what they were given."""

import asyncio
import dataclasses
import logging
from contextvars import ContextVar
from typing import Any, NoReturn

from pgtasks import App, Context, Retry
from pgtasks.outcome import Outcome

app = App(retry=Retry(max_attempts=2, base=0.01, cap=0.02))
SEEN: dict[int, list[str]] = {}
TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


@app.before_task
def see(context: Context) -> None:
    """Note that a task begins; refuse the one that asks for it."""
    SEEN.setdefault(context.task_id, []).append(f"before {context.attempt}")
    if context.headers.get("refuse"):
        raise SystemExit("refused by a hook")


@app.after_task
def see_end(context: Context, outcome: Outcome) -> None:
    """Note how an attempt ended, then break, which changes nothing."""
    SEEN.setdefault(context.task_id, []).append(type(outcome).__name__)
    if context.headers.get("break"):
        raise KeyboardInterrupt("a hook broke")


@app.task
def tell(task_id: int) -> list[str]:
    """Give what the hooks noted about another task."""
    return SEEN.get(task_id, [])


@app.task
def unsteady(context: Context) -> int:
    """Fail once."""
    if not context.is_last_attempt:
        raise RuntimeError("once")
    return context.attempt


@app.task
async def aunsteady(context: Context) -> int:
    """Fail once, on the loop."""
    return unsteady.handler.function(context)  # type: ignore[no-any-return]  # the registry forgets it


@app.task
def show(secret: str, context: Context) -> dict[str, Any]:
    """Give the context's fields, and log two lines."""
    context.logger.info("showing\nthe context", extra={"more": 1})
    left = context.remaining_s()
    fields = {
        field.name: getattr(context, field.name)
        for field in dataclasses.fields(context)
        if not field.name.startswith("_") and field.name not in {"run_at", "deadline"}
    }
    assert secret
    return {**fields, "left": left, "cancelled": context.cancelled, "lease_lost": context.lease_lost}


@app.task
def fails_with(secret: str) -> NoReturn:
    """Fail without naming the secret."""
    assert secret
    raise ValueError("two\nlines \x1b[31m")


@app.task
async def fails_aside(secret: str, context: Context) -> None:
    """Be cancelled with the secret at hand."""
    assert secret
    context.raise_if_lease_lost()
    raise TimeoutError


def say(tenant: str) -> str:
    """Log through a logger that knows nothing of pgtasks; give whom the context was for until now."""
    before = TENANT.get()
    TENANT.set(tenant)
    logging.getLogger("shop").warning("work for %s", tenant)
    return before


@app.task
def says(tenant: str) -> str:
    """Do it in a thread."""
    return say(tenant)


@app.task
async def asays(tenant: str) -> str:
    """Do it on the loop, in a task and a thread that this one starts."""
    await asyncio.gather(asyncio.to_thread(say, f"thread of {tenant}"), asyncio.create_task(asay(f"task of {tenant}")))
    return say(tenant)


async def asay(tenant: str) -> str:
    """Do it at once."""
    return say(tenant)
