"""The end of a drain: whether it is done or given up, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pgtasks import events
from pgtasks.store import looking
from pgtasks.store.link import Link


async def gives_up(link: Link, queues: Sequence[str], names: Sequence[str], full: Collection[str]) -> bool:
    """Say what a drain leaves behind that has nothing more to claim; true when it should have run that.

    ``full`` are the queues whose slots are all taken, by handlers that ignored their stop: nothing
    else runs any more. Tasks of a paused queue and of names this app has no handler for do not
    become claimable by waiting, but somebody may wonder. Raises DatabaseUnavailable.
    """
    left = await link.fetch_all(looking.left(queues, names))
    kept = [one for one in left if one.queue in full and not one.paused and (one.runnable or one.more)]
    if kept:
        events.error(
            "drain given up",
            why="handlers that ignored their stop take all the slots",
            due=_counts([(one.queue, one.runnable + one.foreign, one.more) for one in kept]),
        )
    facts = {
        "paused": _counts([(one.queue, one.runnable + one.foreign, one.more) for one in left if one.paused]),
        "no_handler": _counts([(one.queue, one.foreign, one.more) for one in left if not one.paused]),
        "no_such_queue": ",".join(one.queue for one in left if not one.known),
    }
    said = {name: value for name, value in facts.items() if value}
    if said:
        events.warning("drain leaves something behind", **said)
    return bool(kept)


async def is_due(link: Link, queues: Sequence[str], names: Sequence[str]) -> bool:
    """Tell whether tasks of these names wait in these queues, for a child process that can run them.

    Raises DatabaseUnavailable.
    """
    left = await link.fetch_all(looking.left(queues, names))
    return any(one.runnable and not one.paused for one in left)


def _counts(queues: list[tuple[str, int, bool]]) -> str:
    return ",".join(f"{queue}={count}{'+' if more else ''}" for queue, count, more in queues if count)
