"""Why a task does not run, or what became of it: `pgtasks tasks explain`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rich.console import Group
from rich.text import Text

from pgtasks.cli import render
from pgtasks.cli.amounts import age
from pgtasks.cli.escape import shortened
from pgtasks.cli.output import print_json
from pgtasks.cli.tasks_screen import Found, read_task
from pgtasks.store.explaining import ExplainRow, KeyRow, explain, living
from pgtasks.store.listing import TaskDetails
from pgtasks.store.session import SyncConnection, fetch_one

SHOWN_CHARACTERS_MAX = 60
# A task that became due a moment ago is on its way and needs no reason.
SOON_S = 1.0


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: its kind and facts for programs, what is so and what to do about it for people."""

    kind: str
    message: str
    remedy: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Give it as an object of a JSON document."""
        return {"kind": self.kind, "message": self.message, "remedy": self.remedy, **self.facts}


@dataclass(frozen=True, slots=True)
class Explained:
    """A task and the reasons for its state, the decisive one first."""

    task: TaskDetails
    reasons: list[Reason]


def read(connection: SyncConnection, id: int) -> Explained:
    """Read a task and explain it; raises NotFound."""
    row = fetch_one(connection, explain(id))
    found = read_task(connection, id)
    holder = None
    if found.task.unique_key is not None and found.task.status == "dead":
        holder = fetch_one(connection, living(found.task.unique_key))
    if row is None or found.task.finished_at is not None:
        return Explained(found.task, list(_of_finished(found, holder)))
    return Explained(found.task, reasons_of(found, row))


def show(explained: Explained, *, as_json: bool) -> None:
    """Print a task's reasons."""
    task = explained.task
    if as_json:
        reasons = [reason.as_json() for reason in explained.reasons]
        print_json({"id": task.id, "queue": task.queue, "name": task.name, "status": task.status, "reasons": reasons})
        return
    head = render.safe(f"task {task.id} ({_brief(task.name)}, queue {_brief(task.queue)}) is ", "bold")
    parts = [head.append_text(render.status(task.status))]
    for reason in explained.reasons:
        text = render.safe(reason.message, characters_max=2000)
        if reason.remedy is not None:
            text.append_text(render.safe(f" — {reason.remedy}", "dim", characters_max=2000))
        text.overflow = "fold"
        parts.append(Text("  ").append_text(text))
    render.draw(Group(*parts))


# --- Living tasks ---


def reasons_of(found: Found, row: ExplainRow) -> list[Reason]:
    """Say why a living task is where it is: the decisive reason first; never empty."""
    if row.state == "running":
        return [*_running(found.task, row), *_noted(row)]
    reasons = [
        *_cancelling(row),
        *_not_due(found, row),
        *_paused(found.task, row),
        *_nobody(found.task, row),
        *_locked(row),
        *_quarantined(row),
        *_behind(found.task, row),
    ]
    return [*(reasons or [_on_its_way(row)]), *_noted(row)]


def _running(task: TaskDetails, row: ExplainRow) -> Iterator[Reason]:
    facts = {"worker": row.worker, "started_at": row.claimed_at, "lease_expires_at": row.lease_expires_at}
    expired_s = None if row.lease_expires_at is None else (row.now - row.lease_expires_at) / timedelta(seconds=1)
    if expired_s is None or expired_s > 0:
        since = "" if expired_s is None else f", its lease expired {age(expired_s)} ago"
        yield Reason(
            "lease_expired",
            f"it was running on worker {row.worker or 'unknown'}, which was lost{since}",
            "a live worker takes it back within its sweep interval; start one if none runs",
            facts,
        )
        return
    yield Reason(
        "running",
        f"it has been running for {_since(row, row.claimed_at)} on worker {row.worker}, attempt {_attempt(task)}; "
        f"its lease was renewed in time (ends in {age(-expired_s)})",
        None,
        facts,
    )
    yield from _cancelling(row)


def _cancelling(row: ExplainRow) -> Iterator[Reason]:
    if row.cancel_requested_at is not None:
        yield Reason(
            "cancel_requested",
            f"its cancellation was requested {_since(row, row.cancel_requested_at)} ago; "
            "it ends when its handler stops",
            None,
            {"cancel_requested_at": row.cancel_requested_at},
        )


def _not_due(found: Found, row: ExplainRow) -> Iterator[Reason]:
    if row.due_in_s <= 0:
        return
    task, when = found.task, f"{render.moment(found.task.run_at)}, in {age(row.due_in_s)}"
    facts = {"run_at": task.run_at, "due_in_s": round(row.due_in_s, 3)}
    remedy = f"to run it now: pgtasks tasks retry {task.id}"
    if not row.attempt:
        yield Reason("not_due", f"it is not due before {when}", remedy, facts)
        return
    last = found.attempts[-1] if found.attempts else None
    failed = ""
    if last is not None:
        failed = f" ({last.outcome.replace('_', ' ')}: {_first_line(last.error_class, last.error)})"
    yield Reason(
        "waiting_for_retry",
        f"it waits for its next attempt at {when}; attempt {_attempt(task)} did not succeed{failed}",
        remedy,
        facts,
    )


def _paused(task: TaskDetails, row: ExplainRow) -> Iterator[Reason]:
    if row.paused_at is not None:
        yield Reason(
            "queue_paused",
            f"queue {_brief(task.queue)} has been paused for {_since(row, row.paused_at)}, "
            f"since {render.moment(row.paused_at)}",
            f"pgtasks queues resume {shlex.quote(task.queue)}",
            {"paused_at": row.paused_at},
        )


def _nobody(task: TaskDetails, row: ExplainRow) -> Iterator[Reason]:
    """Say that no live worker can take it: none serves the queue, or none that does knows the name."""
    if row.able:
        return
    facts = {"serving_workers": row.serving, "known_in_queues": row.known_in_queues, "registered": row.registered}
    queue, name = _brief(task.queue), _brief(task.name)
    if row.serving:
        workers = "the live worker that serves" if row.serving == 1 else f"none of the {row.serving:,} live workers of"
        does = "does not know" if row.serving == 1 else "knows"
        yield Reason(
            "unknown_name",
            f"{workers} queue {queue} {does} the name {name}{_known_elsewhere(row)}",
            "start a worker whose app has that task, or cancel it",
            facts,
        )
        return
    yield Reason(
        "unserved_queue",
        f"no live worker serves queue {queue}{_known_elsewhere(row)}",
        f"start one: pgtasks worker MODULE:APP -q {shlex.quote(task.queue)}",
        facts,
    )


def _known_elsewhere(row: ExplainRow) -> str:
    if row.known_in_queues:
        queues = ", ".join(_brief(queue) for queue in row.known_in_queues[:5])
        return f" (live workers that know the name serve: {queues})"
    return "" if row.registered else " (and no worker has ever registered that name)"


def _locked(row: ExplainRow) -> Iterator[Reason]:
    if row.locked_by is not None:
        yield Reason(
            "locked",
            f"an open transaction of pid {row.locked_by} has changed or locked it, so claims pass it by",
            f"end that transaction, or SELECT pg_terminate_backend({row.locked_by})",
            {"locked_by": row.locked_by},
        )


def _quarantined(row: ExplainRow) -> Iterator[Reason]:
    if row.losses and row.able:
        lost = "the process that ran it was lost" + (f" {row.losses} times in a row" if row.losses > 1 else "")
        yield Reason(
            "quarantine",
            f"{lost}, so it runs alone, in a child process, as soon as one is free",
            "more at once: pgtasks worker --children N",
            {"losses": row.losses},
        )


def _behind(task: TaskDetails, row: ExplainRow) -> Iterator[Reason]:
    if row.due_in_s > -SOON_S or not row.able or row.paused_at is not None:
        return
    if row.able == row.draining:
        yield Reason("draining", "every worker that could run it is stopping and claims nothing more", "start a worker")
        return
    ahead = [
        f"{count:,}{' or more' if at_least else ''} {what}"
        for count, at_least, what in (
            (row.higher, row.higher_is_least, "of higher priority"),
            (row.earlier, row.earlier_is_least, f"of its priority ({task.priority}) that came earlier"),
        )
        if count
    ]
    if ahead:
        yield Reason(
            "queued_behind",
            f"it is queued behind {' and '.join(ahead)}, which come first on the {_workers(row)} of its queue",
            "start more workers, or raise its priority",
            {"higher_priority": row.higher, "earlier": row.earlier},
        )
    if not row.ready:
        yield from _full(task, row)


def _full(task: TaskDetails, row: ExplainRow) -> Iterator[Reason]:
    """Say of what each worker that could run it has none left: slots, slots of its queue, or child processes."""
    full = row.able - row.draining - row.queue_full - row.childless
    if full:
        whose = f"{row.slots:,} slots of the {_workers(row)}" if full == row.able else f"slots of {_live(full)}"
        yield Reason(
            "workers_busy",
            f"all {whose} that could run it are taken",
            "start more workers, or raise --concurrency",
            {"slots": row.slots, "busy": row.busy},
        )
    if row.queue_full:
        queue = _brief(task.queue)
        yield Reason(
            "queue_slots_taken",
            f"queue {queue} may take {'1 slot' if row.queue_slots == 1 else f'{row.queue_slots:,} slots'} of "
            f"{_live(row.queue_full)}, and no more is free",
            f"raise SLOTS in -q {shlex.quote(task.queue)}:SLOTS there, or start more workers",
            {"queue_slots": row.queue_slots, "workers": row.queue_full},
        )
    if row.childless:
        of_these = "the only one is taken" if row.children == 1 else f"none of {row.children:,} is free"
        yield Reason(
            "children_busy",
            f"it runs in a child process, and on {_live(row.childless)} {of_these}",
            "raise --children there, or start more workers",
            {"children": row.children, "workers": row.childless},
        )


def _workers(row: ExplainRow) -> str:
    return "live worker" if row.able == 1 else f"{row.able:,} live workers"


def _live(workers: int) -> str:
    return "a live worker" if workers == 1 else f"{workers:,} live workers"


def _on_its_way(row: ExplainRow) -> Reason:
    if row.due_in_s > -SOON_S:
        return Reason("due", f"it became due {max(0.0, -row.due_in_s):.1f} s ago and is taken next", None)
    unless = ""
    if row.silent:
        unless = (
            f", unless {_live(row.silent)} of an older version, whose limits are not known, had no slot for its queue "
            "(-q QUEUE:SLOTS) or no child process (--children) left"
        )
    return Reason(
        "due",
        f"it has been due for {age(-row.due_in_s)}, and the {_workers(row)} of its queue should take it soon{unless}",
        "look again; if it stays: pgtasks status, and the workers' logs",
    )


def _noted(row: ExplainRow) -> Iterator[Reason]:
    if row.unique_key is not None:
        yield Reason(
            "unique_key",
            f"while it lives, enqueues with its unique key {_brief(row.unique_key)} add nothing and get its id",
            None,
            {"unique_key": row.unique_key},
        )


# --- Finished tasks ---


def _of_finished(found: Found, holder: KeyRow | None) -> Iterator[Reason]:
    task = found.task
    when = render.moment(task.finished_at)
    match task.status:
        case "completed":
            note = f"; {task.error}" if task.error else ""
            yield Reason("completed", f"it completed at {when} in attempt {task.attempt}{note}")
        case "cancelled":
            yield Reason("cancelled", f"it was cancelled at {when}" + (f": {task.error}" if task.error else ""))
        case _:
            yield Reason(
                "dead",
                f"it is a dead letter since {when} ({(task.reason or 'unknown').replace('_', ' ')}) after attempt "
                f"{_attempt(task)}: {_first_line(task.error_class, task.error)}",
                f"when its cause is gone: pgtasks dead replay {task.id}",
                {"reason": task.reason},
            )
    if holder is not None:
        yield Reason(
            "unique_conflict",
            f"it cannot be replayed now: its unique key {_brief(task.unique_key or '')} belongs to task {holder.id}, "
            f"which is {holder.status}",
            f"see: pgtasks tasks explain {holder.id}",
            {"unique_key": task.unique_key, "held_by": holder.id},
        )


def _attempt(task: TaskDetails) -> str:
    limit = task.max_attempts if task.max_attempts is not None else task.handler_max_attempts
    return f"{task.attempt}" if limit is None else f"{task.attempt} of {limit}"


def _since(row: ExplainRow, moment: datetime | None) -> str:
    return age(None if moment is None else (row.now - moment) / timedelta(seconds=1))


def _first_line(error_class: str | None, error: str | None) -> str:
    lines = (error or "").splitlines() or [""]
    text = f"{error_class}: {lines[0]}" if error_class else lines[0]
    return shortened(text, 300) or "no message"


def _brief(name: str) -> str:
    return shortened(name, SHOWN_CHARACTERS_MAX)
