"""Statements with which a worker looks at its queues without taking anything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql
from pgtasks.store.statements import Lane

# Beyond every priority there can be, on either side.
PRIORITY_BELOW_ALL, PRIORITY_ABOVE_ALL = -(2**16), 2**16


class Left(NamedTuple):
    """The due tasks of one queue as a drain ends."""

    queue: str
    paused: bool
    runnable: int
    foreign: int
    more: bool
    known: bool


def left(queues: Sequence[str], names: Sequence[str]) -> Statement[Left]:
    """Count what is due in these queues, by whether a worker with these names could run it."""
    return Statement(sql("tasks_left"), {"queues": list(queues), "names": list(names)}, Left)


def new_lanes(queue: str, priorities: Sequence[int], names: Sequence[str]) -> Statement[Lane]:
    """Find the beginnings of lanes in other priorities than these, which come highest first."""
    edges = [PRIORITY_ABOVE_ALL, *priorities, PRIORITY_BELOW_ALL]
    gaps = [(above, below) for below, above in pairwise(edges) if below - above > 1]
    params = {
        "queue": queue,
        "names": list(names),
        "aboves": [above for above, _ in gaps],
        "belows": [below for _, below in gaps],
    }
    return Statement(sql("tasks_new_lanes"), params, Lane)
