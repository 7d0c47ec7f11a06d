"""Tasks at places of a queue, and where a cursor stands, for the tests of cursors."""

from datetime import UTC, datetime, timedelta

from pgtasks.engine.cursor import Cursor
from pgtasks.model import Claimed

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Give a moment, by the seconds since some other one."""
    return T0 + timedelta(seconds=seconds)


def task(seconds: float, number: int, priority: int = 0) -> Claimed:
    """Give the task of this id that was due then."""
    return Claimed(number, 1, "t", "{}", 1, None, None, priority, at(seconds), None)


def on_lanes(cursor: Cursor) -> list[tuple[int, datetime, int]]:
    """Give where each lane stands: priority, run_at, id."""
    return [(lane.priority, lane.run_at, lane.id) for lane in cursor.lanes()]
