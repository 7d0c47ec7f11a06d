"""What `pgtasks top` shows, and what a key does to it: values and pure functions.

A ``Look`` at the database is absorbed into a ``Picture``, which remembers what looks have told:
the rates of the last seconds and the latest failures. A ``View`` is what the person has chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, get_args

from pgtasks.store.overview import QueueCounts
from pgtasks.store.reading import WorkerRow
from pgtasks.store.watching import ENDED_ROWS_MAX, EndedRow, FailureRow, Look, RunningTask

Sort = Literal["age", "queue", "name", "worker"]
SORTS: tuple[Sort, ...] = get_args(Sort)

# A rate is that of the looks of this time: less jumps, more lags behind.
RATE_SPAN = timedelta(seconds=10)
FAILURES_KEPT = 100


# --- What was seen ---


@dataclass(frozen=True, slots=True)
class Window:
    """What ended in the time between two looks, by queue."""

    since: datetime
    until: datetime
    completed: Counter[str]
    failed: Counter[str]


@dataclass(frozen=True, slots=True)
class Picture:
    """What is known after some looks, as it is drawn."""

    now: datetime
    database: str
    version: str
    queues: Sequence[QueueCounts]
    running: Sequence[RunningTask]
    workers: Sequence[WorkerRow]
    failures: Sequence[FailureRow] = ()
    windows: Sequence[Window] = ()

    def rates(self, of: Literal["completed", "failed"]) -> dict[str, float]:
        """Give how many tasks a second were completed, or attempts failed, by queue."""
        span_s = sum(((window.until - window.since) / timedelta(seconds=1) for window in self.windows), 0.0)
        total: Counter[str] = Counter()
        for window in self.windows:
            total.update(window.completed if of == "completed" else window.failed)
        return {queue: count / span_s for queue, count in total.items()} if span_s > 0 else {}

    def running_by(self, sort: Sort) -> list[RunningTask]:
        """Give the running tasks in an order; within a queue, a name or a worker the oldest first."""
        keys: dict[Sort, Callable[[RunningTask], str]] = {
            "age": lambda _: "",
            "queue": lambda task: task.queue,
            "name": lambda task: task.name,
            "worker": lambda task: task.worker or str(task.worker_id),
        }
        return sorted(self.running, key=lambda task: (keys[sort](task), task.claimed_at, task.id))


def absorb(before: Picture | None, look: Look) -> Picture:
    """Add a look to what was known."""
    window = Window(
        look.since,
        look.until,
        _ended(look.completed, look.since, look.until),
        _ended(look.failed, look.since, look.until),
    )
    earlier = [one for one in (before.windows if before else ()) if one.since >= look.until - RATE_SPAN]
    known = {} if before is None else {_key(one): one for one in before.failures}
    failures = sorted({**known, **{_key(one): one for one in look.failures}}.values(), key=_newest_first)
    return Picture(
        now=look.now,
        database=look.database,
        version=look.version,
        queues=look.queues,
        running=look.running,
        workers=look.workers,
        failures=failures[:FAILURES_KEPT],
        windows=[*earlier, window],
    )


def _key(failure: FailureRow) -> tuple[int, int, int]:
    return failure.task_id, failure.attempt, failure.lease_id


def _newest_first(failure: FailureRow) -> tuple[float, int, int]:
    return -failure.finished_at.timestamp(), -failure.task_id, -failure.attempt


def _ended(rows: Sequence[EndedRow], since: datetime, until: datetime) -> Counter[str]:
    """Give how much ended by queue; where counting stopped at its limit, as much as its pace makes of the window."""
    counts = Counter({row.queue: row.ended for row in rows})
    if counts.total() < ENDED_ROWS_MAX:
        return counts
    counted = max(row.last_at for row in rows) - min(row.first_at for row in rows)
    factor = max(1.0, (until - since) / max(counted, timedelta(milliseconds=1)))
    return Counter({queue: round(count * factor) for queue, count in counts.items()})


# --- What a person has chosen ---


@dataclass(frozen=True, slots=True)
class Selected:
    """A row: a queue, or one of its running tasks. When the task has ended its queue stays selected."""

    queue: str
    task_id: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What is shown of a picture; ``asking`` is a task whose cancelling waits for y or n."""

    sort: Sort = "age"
    selected: Selected | None = None
    frozen: bool = False
    help: bool = False
    asking: RunningTask | None = None
    said: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Quit:
    """The person wants to leave."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a task."""

    task_id: int


Action = Quit | Pause | Resume | Cancel


def rows_of(picture: Picture, sort: Sort) -> list[Selected]:
    """Give everything that can be selected, from top to bottom."""
    queues = [Selected(queue.queue) for queue in picture.queues]
    return queues + [Selected(task.queue, task.id) for task in picture.running_by(sort)]


def settled(view: View, picture: Picture) -> View:
    """Give the view with a selection that is there: the task, else its queue, else the first row."""
    rows = rows_of(picture, view.sort)
    chosen = view.selected
    if chosen is not None and chosen not in rows:
        chosen = Selected(chosen.queue)
    if chosen not in rows:
        chosen = rows[0] if rows else None
    return replace(view, selected=chosen)


def press(view: View, picture: Picture | None, key: str) -> tuple[View, Action | None]:
    """Give what a key makes of the view, and what has to be done."""
    if view.asking is not None:
        said = "" if key == "y" else "nothing was cancelled"
        return replace(view, asking=None, said=said), Cancel(view.asking.id) if key == "y" else None
    if key == "q":
        return view, Quit()
    if view.help:
        return replace(view, help=False), None
    return _press_unasked(replace(view, said=""), picture, key)


def _press_unasked(view: View, picture: Picture | None, key: str) -> tuple[View, Action | None]:
    if key == "?":
        return replace(view, help=True), None
    if key == "s":
        return replace(view, sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)]), None
    if key == " ":
        return replace(view, frozen=not view.frozen), None
    return (view, None) if picture is None else _press_on(settled(view, picture), picture, key)


def _press_on(view: View, picture: Picture, key: str) -> tuple[View, Action | None]:
    """Do the same for the keys that are about the rows shown."""
    steps = {"down": 1, "j": 1, "up": -1, "k": -1, "page down": 10, "page up": -10}
    if key in steps:
        return _moved(view, picture, steps[key]), None
    if key == "tab":
        return _on_the_other_list(view, picture), None
    if key == "p" and view.selected is not None:
        return view, _pause_or_resume(view.selected.queue, picture)
    if key == "c":
        return _asking(view, picture), None
    return view, None


def _moved(view: View, picture: Picture, by: int) -> View:
    rows = rows_of(picture, view.sort)
    if view.selected is None:
        return view
    at = min(len(rows) - 1, max(0, rows.index(view.selected) + by))
    return replace(view, selected=rows[at])


def _on_the_other_list(view: View, picture: Picture) -> View:
    on_task = view.selected is not None and view.selected.task_id is not None
    others = [row for row in rows_of(picture, view.sort) if (row.task_id is None) == on_task]
    return replace(view, selected=others[0]) if others else view


def _pause_or_resume(name: str, picture: Picture) -> Action:
    paused = any(queue.queue == name and queue.paused_at is not None for queue in picture.queues)
    return Resume(name) if paused else Pause(name)


def _asking(view: View, picture: Picture) -> View:
    wanted = None if view.selected is None else view.selected.task_id
    task = next((one for one in picture.running if one.id == wanted), None)
    if task is None:
        return replace(view, said="select a running task first, with the arrows or tab")
    return replace(view, asking=task)
