"""What the demo promises, judged by nothing but rows that were read from the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from pgtasks.store.demonstrating import DemoAttempt, DemoTask
from pgtasks.store.schedule_reading import FireRow

LEASE_S, SWEEP_S = 3.0, 1.0
# For the claim that follows the sweep, on a machine that is busy.
SLACK_S = 2.0
RECOVERY_S_MAX = LEASE_S + SWEEP_S + SLACK_S
PERIOD = timedelta(seconds=5)
# What the demo waits for; fewer slots show little.
SLOTS_MIN = 2
# The last slot may have come at the moment the schedule was removed, or in the one before.
TAIL_MAX = 2 * PERIOD
TICK = "demo.tick"


@dataclass(frozen=True, slots=True)
class Killed:
    """The worker that was killed, when by the database's clock, and the tasks it had in hand."""

    worker: UUID
    pid: int
    at: datetime
    task_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scheduled:
    """When the demo's schedule was there, by the database's clock."""

    since: datetime
    until: datetime


@dataclass
class Script:
    """What the demo did: the ids of the tasks it made, and whom it killed."""

    emails: int = 0
    receipt: int = 0
    rolled_back: int = 0
    flaky: int = 0
    flaky_fails: int = 0
    hopeless: int = 0
    videos: list[int] = field(default_factory=list)
    killed: Killed | None = None
    scheduled: Scheduled | None = None

    @property
    def inserted(self) -> int:
        """How many tasks exist, the one that was rolled back left out."""
        return self.emails + len(self.videos) + sum(1 for id in (self.receipt, self.flaky, self.hopeless) if id)


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, whether it was kept, and the numbers that say so."""

    promise: str
    kept: bool
    seen: str


@dataclass(frozen=True)
class Facts:
    """What the database holds about the demo's tasks; ``ticks`` are those that its schedule made."""

    tasks: list[DemoTask]
    attempts: list[DemoAttempt]
    ticks: list[DemoTask] = field(default_factory=list)
    fires: list[FireRow] = field(default_factory=list)

    def task(self, id: int) -> DemoTask | None:
        """Give a task's row, None when there is none."""
        return next((task for task in self.tasks if task.id == id), None)

    def named(self, name: str) -> list[DemoTask]:
        """Give the rows of one task name."""
        return [task for task in self.tasks if task.name == name]

    def failures(self, ids: Iterable[int], outcome: str) -> list[DemoAttempt]:
        """Give the attempts of these tasks that ended in one way."""
        wanted = set(ids)
        return [one for one in self.attempts if one.task_id in wanted and one.outcome == outcome]

    def by_status(self) -> Counter[str]:
        """Count the rows by status."""
        return Counter(task.status for task in self.tasks)


def judge(script: Script, facts: Facts) -> list[Promise]:
    """Hold what was promised against what is in the database."""
    return [
        _sql(script, facts),
        _committed(script, facts),
        _rolled_back(script, facts),
        _retried(script, facts),
        _buried(script, facts),
        _recovered(script, facts),
        _in_time(script, facts),
        _complete(script, facts),
        _on_schedule(script, facts),
    ]


def recovery_s(script: Script, facts: Facts) -> float | None:
    """Give the seconds from the kill to the last restart of a task it hit; None when one never restarted."""
    killed = script.killed
    rows = [facts.task(id) for id in killed.task_ids] if killed else []
    starts = [row.started_at for row in rows if row is not None and row.attempt > 1 and row.started_at is not None]
    if killed is None or not starts or len(starts) < len(killed.task_ids):
        return None
    return (max(starts) - killed.at) / timedelta(seconds=1)


def _sql(script: Script, facts: Facts) -> Promise:
    done = Counter(task.status for task in facts.named("demo.send_email"))["completed"]
    return Promise(
        "tasks that plain SQL inserted have run", script.emails > 0 and done == script.emails, f"{done} completed"
    )


def _committed(script: Script, facts: Facts) -> Promise:
    row = facts.task(script.receipt)
    return Promise(
        "a committed transaction's task has run",
        row is not None and row.status == "completed",
        f"task {script.receipt} {row.status if row else 'is missing'}",
    )


def _rolled_back(script: Script, facts: Facts) -> Promise:
    gone = script.rolled_back > 0 and facts.task(script.rolled_back) is None
    return Promise(
        "a rolled-back one never existed", gone, f"task {script.rolled_back}: {'no row' if gone else 'there is a row'}"
    )


def _retried(script: Script, facts: Facts) -> Promise:
    row, failed = facts.task(script.flaky), len(facts.failures([script.flaky], "failed"))
    kept = row is not None and (row.status, row.attempt, failed) == (
        "completed",
        script.flaky_fails + 1,
        script.flaky_fails,
    )
    return Promise(
        "a failing task was retried until it worked",
        kept,
        f"{failed} attempts failed, then {row.status if row else 'missing'} in attempt {row.attempt if row else '?'}",
    )


def _buried(script: Script, facts: Facts) -> Promise:
    row = facts.task(script.hopeless)
    dead = facts.by_status()["dead"]
    kept = row is not None and row.status == "dead" and bool(row.error) and dead == 1
    return Promise(
        "a hopeless one is kept as a dead letter", kept, f"{dead} dead, with its error" if kept else f"{dead} dead"
    )


def _recovered(script: Script, facts: Facts) -> Promise:
    killed = script.killed
    ids = killed.task_ids if killed else ()
    lost = {one.task_id for one in facts.failures(ids, "worker_lost") if killed and one.worker_id == killed.worker}
    again = [row for id in ids if (row := facts.task(id)) and row.status == "completed" and row.attempt > 1]
    elsewhere = [row for row in again if killed and row.worker != killed.worker]
    return Promise(
        "a killed worker's tasks ran again elsewhere",
        0 < len(ids) == len(lost) == len(elsewhere),
        f"{len(lost)} lost in mid-task, {len(elsewhere)} completed by the other worker",
    )


def _in_time(script: Script, facts: Facts) -> Promise:
    took_s = recovery_s(script, facts)
    return Promise(
        f"within {RECOVERY_S_MAX:g} s of the kill (lease {LEASE_S:g} s, sweep {SWEEP_S:g} s)",
        took_s is not None and took_s <= RECOVERY_S_MAX,
        "never" if took_s is None else f"after {took_s:.1f} s",
    )


def _complete(script: Script, facts: Facts) -> Promise:
    ids = {task.id for task in facts.tasks}
    finished = sum(facts.by_status()[status] for status in ("completed", "dead"))
    kept = script.inserted == len(ids) == len(facts.tasks) == finished
    return Promise(
        "nothing was lost, nothing doubled",
        kept,
        f"{script.inserted} inserted, {len(facts.tasks)} rows, {len(ids)} ids, {finished} finished",
    )


def _on_schedule(script: Script, facts: Facts) -> Promise:
    fired = [fire for fire in facts.fires if fire.outcome == "fired"]
    last = max((fire.fire_time for fire in fired), default=None)
    slots = slots_of(script.scheduled, last)
    done = [tick.id for tick in facts.ticks if tick.status == "completed"]
    kept = (
        script.scheduled is not None
        and last is not None
        and script.scheduled.until - last <= TAIL_MAX
        and len(slots) >= SLOTS_MIN
        and sorted(fire.fire_time for fire in fired) == slots
        and sorted(fire.task_id or 0 for fire in fired) == sorted(done) == sorted(tick.id for tick in facts.ticks)
    )
    return Promise(
        f"a schedule of every {PERIOD.total_seconds():g} s fired once per slot, whoever lived",
        kept,
        f"{len(slots)} slots, {len(fired)} fires, {len(facts.ticks)} tasks, {len(done)} completed",
    )


def slots_of(scheduled: Scheduled | None, last: datetime | None) -> list[datetime]:
    """Give the multiples of the period that lie after the schedule was made, up to the last fire."""
    if scheduled is None or last is None:
        return []
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    first, end = (scheduled.since - epoch) // PERIOD + 1, (last - epoch) // PERIOD
    return [epoch + number * PERIOD for number in range(first, end + 1)]
