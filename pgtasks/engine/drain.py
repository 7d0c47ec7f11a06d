"""The end of a drain: whether it is done or given up, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pgtasks import events
from pgtasks.store import looking
from pgtasks.store.link import Link
from pgtasks.store.looking import Left

_SLOTLESS = "handlers that ignored their stop take all the slots"
_CHILDLESS = "child processes do not start"


async def gives_up(
    link: Link, queues: Sequence[str], names: Sequence[str], full: Collection[str], childless: Collection[str]
) -> bool:
    """Say what a drain leaves behind that has nothing more to claim; true when it should have run that.

    ``full`` are the queues whose slots are all taken, by handlers that ignored their stop: nothing
    else runs any more. What is due in the ``childless`` would have to run in child processes, of which
    none starts. Tasks of a paused queue and of names this app has no handler for do not
    become claimable by waiting, but somebody may wonder. Raises DatabaseUnavailable.
    """
    left = await link.fetch_all(looking.left(queues, names))
    waiting = [one for one in left if _may_run(one)]
    gives_up = False
    for these, why in ((full, _SLOTLESS), (childless, _CHILDLESS)):
        kept = [(one.queue, one.runnable or one.foreign, one.more) for one in waiting if one.queue in these]
        if kept:
            events.error("drain given up", why=why, due=_counts(kept))
            gives_up = True
    facts = {
        "paused": _counts([(one.queue, one.runnable + one.foreign, one.more) for one in left if one.paused]),
        "no_handler": _counts([(one.queue, one.foreign, one.more) for one in left if not one.paused]),
        "no_such_queue": ",".join(one.queue for one in left if not one.known),
    }
    said = {name: value for name, value in facts.items() if value}
    if said:
        events.warning("drain leaves something behind", **said)
    return gives_up


async def is_due(link: Link, queues: Sequence[str], names: Sequence[str]) -> bool:
    """Tell whether tasks of these names wait in these queues, for a child process that can run them.

    Raises DatabaseUnavailable.
    """
    left = await link.fetch_all(looking.left(queues, names))
    return any(map(_may_run, left))


def _may_run(left: Left) -> bool:
    """Tell whether some of it is, or may be, for this worker: not all is counted where there is much."""
    return not left.paused and bool(left.runnable or left.more)


def _counts(queues: list[tuple[str, int, bool]]) -> str:
    return ",".join(f"{queue}={count}{'+' if more else ''}" for queue, count, more in queues if count)
