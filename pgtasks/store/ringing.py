"""The bells of queues: taken by who sleeps, rung by who enqueues (docs/adr/0006-doorbell.md)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql


class Bell(NamedTuple):
    """One queue's bell after an attempt to take it."""

    queue: str
    armed: bool
    held: bool


def arm_bells(queues: Sequence[str]) -> Statement[Bell]:
    """Try to take these queues' bells."""
    return Statement(sql("bells_arm"), {"queues": list(queues)}, Bell)


def release_bells(ring: Collection[str]) -> Statement[Any]:
    """Give every bell of this session back, and ring those of the queues in ``ring``."""
    return Statement(sql("bells_release"), {"ring": list(ring)})


def notify(channel: str) -> Statement[Any]:
    """Send one notification to a session that wants to know whether it hears."""
    return Statement(sql("bells_test"), {"channel": channel})
