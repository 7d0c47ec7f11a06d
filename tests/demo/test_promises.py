"""The demo judges by what is in the database, and a broken promise is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from pgtasks.cli.demo.promises import (
    PERIOD,
    RECOVERY_S_MAX,
    TICK,
    Facts,
    Killed,
    Scheduled,
    Script,
    judge,
    recovery_s,
)
from pgtasks.store.demonstrating import DemoAttempt, DemoTask
from pgtasks.store.schedule_reading import FireRow

AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
DEAD_WORKER, OTHER_WORKER = UUID(int=1), UUID(int=2)
EMAIL, RECEIPT, ROLLED_BACK, FLAKY, HOPELESS, VIDEO = range(1, 7)
TICKS = (11, 12, 13, 14)


def task(id: int, name: str, attempt: int = 1, status: str = "completed", error: str | None = None) -> DemoTask:
    """Return a finished task's row, started a second after the kill."""
    started = AT + timedelta(seconds=1)
    return DemoTask(id, name, status, attempt, started, started, error, OTHER_WORKER)  # type: ignore[arg-type]  # a test may give any status


def script() -> Script:
    """Return what a performance did, with one task of each kind."""
    return Script(
        emails=1,
        receipt=RECEIPT,
        rolled_back=ROLLED_BACK,
        flaky=FLAKY,
        flaky_fails=2,
        hopeless=HOPELESS,
        videos=[VIDEO],
        killed=Killed(DEAD_WORKER, 4711, AT, (VIDEO,)),
        scheduled=Scheduled(AT - timedelta(seconds=1), AT + 4 * PERIOD),
    )


def facts() -> Facts:
    """Return what the database holds when all went well."""
    return Facts(
        [
            task(EMAIL, "demo.send_email"),
            task(RECEIPT, "demo.send_receipt"),
            task(FLAKY, "demo.charge_card", attempt=3),
            task(HOPELESS, "demo.import_file", status="dead", error="not a CSV file"),
            task(VIDEO, "demo.render_video", attempt=2),
        ],
        [
            DemoAttempt(FLAKY, 1, "failed", OTHER_WORKER, "ConnectionError", "busy"),
            DemoAttempt(FLAKY, 2, "failed", OTHER_WORKER, "ConnectionError", "busy"),
            DemoAttempt(HOPELESS, 1, "failed", OTHER_WORKER, "PermanentError", "not a CSV file"),
            DemoAttempt(VIDEO, 1, "worker_lost", DEAD_WORKER, "WorkerLost", "its lease expired"),
        ],
        [task(id, TICK) for id in TICKS],
        [
            FireRow(AT + PERIOD * n, "fired", id, AT, backfilled=False, lateness_s=0.1, status="completed")
            for n, id in enumerate(TICKS)
        ],
    )


def changed(seen: Facts, id: int, **values: Any) -> Facts:
    """Return the facts with one task's row changed."""
    return replace(seen, tasks=[row._replace(**values) if row.id == id else row for row in seen.tasks])


def test_all_promises_are_kept_when_all_went_well() -> None:
    """The rows of a good performance satisfy each promise."""
    assert [promise for promise in judge(script(), facts()) if not promise.kept] == []
    assert recovery_s(script(), facts()) == 1


BROKEN: dict[str, tuple[Callable[[Facts], Facts], set[int]]] = {
    "an email still runs": (lambda seen: changed(seen, EMAIL, status="running"), {0, 7}),
    "the receipt is lost": (lambda seen: replace(seen, tasks=[t for t in seen.tasks if t.id != RECEIPT]), {1, 7}),
    "the rolled-back one ran": (
        lambda seen: replace(seen, tasks=[*seen.tasks, task(ROLLED_BACK, "demo.send_receipt")]),
        {2, 7},
    ),
    "no attempt was recorded": (lambda seen: replace(seen, attempts=seen.attempts[1:]), {3}),
    "the hopeless one completed": (lambda seen: changed(seen, HOPELESS, status="completed"), {4}),
    "the dead worker's task did not run again": (
        lambda seen: changed(seen, VIDEO, status="running", attempt=1),
        {5, 6, 7},
    ),
    "it ran again on the dead worker": (lambda seen: changed(seen, VIDEO, worker=DEAD_WORKER), {5}),
    "it ran again too late": (
        lambda seen: changed(seen, VIDEO, started_at=AT + timedelta(seconds=RECOVERY_S_MAX + 1)),
        {6},
    ),
    "a task exists twice": (lambda seen: replace(seen, tasks=[*seen.tasks, seen.tasks[1]]), {7}),
    "a slot did not fire": (
        lambda seen: replace(seen, fires=[*seen.fires[:1], *seen.fires[2:]], ticks=[*seen.ticks[:1], *seen.ticks[2:]]),
        {8},
    ),
    "the last slots did not fire": (lambda seen: replace(seen, fires=seen.fires[:2], ticks=seen.ticks[:2]), {8}),
    "a slot made two tasks": (lambda seen: replace(seen, ticks=[*seen.ticks, task(15, TICK)]), {8}),
    "a slot was missed": (
        lambda seen: replace(seen, fires=[seen.fires[0]._replace(outcome="missed", task_id=None), *seen.fires[1:]]),
        {8},
    ),
    "a slot's task has not run": (
        lambda seen: replace(seen, ticks=[*seen.ticks[:3], task(TICKS[3], TICK, status="queued")]),
        {8},
    ),
    "nothing is there": (lambda _: Facts([], []), {0, 1, 3, 4, 5, 6, 7, 8}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_seen(name: str) -> None:
    """Exactly the promises that the change breaks are reported."""
    change, broken = BROKEN[name]
    judged = judge(script(), change(facts()))
    assert {number for number, promise in enumerate(judged) if not promise.kept} == broken


def test_a_performance_that_did_nothing_keeps_no_promise() -> None:
    """An empty database is no proof of anything."""
    assert not any(
        promise.kept for promise in judge(Script(), Facts([], [])) if "nothing was lost" not in promise.promise
    )
