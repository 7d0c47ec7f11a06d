"""What `pgtasks tasks list` and `tasks show` print."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pgtasks.cli import known, render
from pgtasks.cli.amounts import age
from pgtasks.cli.options import ID_MAX
from pgtasks.cli.output import RawJson, print_json
from pgtasks.errors import NotFound
from pgtasks.store import listing
from pgtasks.store.listing import AttemptRow, TaskDetails, TaskRow
from pgtasks.store.session import SyncConnection, fetch_all, fetch_one

ATTEMPTS_MAX = 100
BLOCK_CHARACTERS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of tasks, and the id to continue from; None when this was the last page."""

    tasks: list[TaskRow]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """A task with its failed attempts."""

    task: TaskDetails
    attempts: list[AttemptRow]


# --- Lists ---


def read_list(
    connection: SyncConnection,
    *,
    before: int | None,
    limit: int,
    status: str | None,
    queue: str | None,
    name: str | None,
) -> Listed:
    """Read a page; raises NotFound when nothing fits a queue or name that nobody knows."""
    statement = listing.tasks(before=before or ID_MAX, limit=limit, status=status, queue=queue, name=name)
    rows = fetch_all(connection, statement)
    if not rows:
        known.require(connection, queue=queue, name=name)
    return Listed(rows, rows[-1].id if len(rows) == limit else None)


def show_list(listed: Listed, *, as_json: bool) -> None:
    """Print a page of tasks."""
    if as_json:
        print_json({"tasks": [row._asdict() for row in listed.tasks], "next_before": listed.next_before})
        return
    if not listed.tasks:
        sys.stderr.write("no tasks fit\n")
        return
    table = render.table(
        [
            ("id", "right"),
            ("status", "left"),
            ("queue", "left"),
            ("name", "left"),
            ("tries", "right"),
            ("when (UTC)", "left"),
            ("took", "right"),
        ],
        flexible=["queue", "name"],
    )
    for row in listed.tasks:
        table.add_row(
            Text(str(row.id)),
            render.status(row.status),
            render.safe(row.queue),
            render.safe(row.name),
            Text(str(row.attempt)),
            Text(render.moment(row.finished_at or row.started_at or row.run_at)),
            Text(_took(row)),
        )
    render.draw(table)
    if listed.next_before is not None and sys.stdout.isatty():
        sys.stderr.write(f"more: --before {listed.next_before}\n")


def _took(row: TaskRow | TaskDetails) -> str:
    if row.started_at is None or row.finished_at is None:
        return ""
    seconds = (row.finished_at - row.started_at).total_seconds()
    return f"{max(0.0, seconds) * 1000:.0f}ms" if seconds < 10 else age(seconds)  # noqa: PLR2004 - then ms are noise


# --- One task ---


def read_task(connection: SyncConnection, id: int) -> Found:
    """Read a task; raises NotFound."""
    task = fetch_one(connection, listing.task(id))
    if task is None:
        raise NotFound(f"there is no task {id} — see: pgtasks tasks list")
    return Found(task, fetch_all(connection, listing.attempts(id, limit=ATTEMPTS_MAX)))


def show_task(found: Found, *, as_json: bool) -> None:
    """Print a task with its attempts."""
    if as_json:
        print_json(document(found))
        return
    parts: list[RenderableType] = [render.facts(_facts(found.task))]
    for title, text in (("payload", found.task.payload), ("result", found.task.result)):
        if text is not None:
            parts.extend(_block(title, text))
    if found.task.error is not None:
        parts.extend(_block("error", _error_text(found.task), "red"))
    if found.task.traceback and not any(attempt.traceback for attempt in found.attempts):
        parts.extend(_block("traceback", found.task.traceback))
    shown: dict[str, int] = {}
    for attempt in found.attempts:
        trace = attempt.traceback
        text = f"as in attempt {shown[trace]}" if trace in shown else _attempt_text(attempt)
        if trace:
            shown.setdefault(trace, attempt.attempt)
        parts.extend(_block(_attempt_title(attempt), text))
    render.draw(Group(*parts))


def document(found: Found) -> dict[str, Any]:
    """Give a task as one JSON document."""
    raw = {name: RawJson(getattr(found.task, name)) for name in ("payload", "result", "headers")}
    return {
        **found.task._asdict(),
        **raw,
        "attempts": [attempt._asdict() for attempt in found.attempts],
    }


def _facts(task: TaskDetails) -> Iterator[tuple[str, Text | str]]:
    yield "task", str(task.id)
    yield "name", render.safe(task.name)
    yield "queue", render.safe(task.queue)
    yield "status", _status(task)
    yield "attempt", _attempt(task)
    if task.losses:
        times = "" if task.losses == 1 else f" {task.losses} times in a row"
        yield "quarantine", f"the process that ran it was lost{times}, so it runs alone, in a child process"
    yield "priority", str(task.priority)
    yield "run at", render.moment(task.run_at)
    yield "created", render.moment(task.created_at)
    if task.started_at is not None:
        yield "started", render.moment(task.started_at)
    if task.finished_at is not None:
        took = _took(task)
        yield "finished", render.moment(task.finished_at) + (f" (took {took})" if took else "")
    if task.timeout_s is not None or task.handler_timeout_s is not None:
        own = "" if task.timeout_s is not None else " (its handler's)"
        yield "timeout", age(task.timeout_s or task.handler_timeout_s) + own
    if task.unique_key is not None:
        yield "unique key", render.safe(task.unique_key, characters_max=BLOCK_CHARACTERS_MAX)
    if task.worker_id is not None:
        yield "worker", render.safe(task.worker or task.worker_id)
    if task.headers is not None:
        yield "headers", render.safe(task.headers, characters_max=BLOCK_CHARACTERS_MAX)


def _attempt(task: TaskDetails) -> str:
    if task.max_attempts is not None:
        return f"{task.attempt} of {task.max_attempts}"
    if task.handler_max_attempts is not None:
        return f"{task.attempt} of {task.handler_max_attempts} (its handler's limit)"
    return str(task.attempt)


def _status(task: TaskDetails) -> Text:
    shown = render.status(task.status)
    if task.reason is not None:
        shown.append_text(render.safe(f" ({task.reason.replace('_', ' ')})"))
    if task.cancel_requested_at is not None:
        shown.append_text(Text(f" (cancel requested {render.moment(task.cancel_requested_at)})"))
    return shown


def _error_text(task: TaskDetails) -> str:
    return f"{task.error_class}: {task.error}" if task.error_class else str(task.error)


def _attempt_title(attempt: AttemptRow) -> str:
    worker = attempt.worker or attempt.worker_id
    by = f" by {worker}" if worker else ""
    return f"attempt {attempt.attempt}: {attempt.outcome.replace('_', ' ')} {render.moment(attempt.finished_at)}{by}"


def _attempt_text(attempt: AttemptRow) -> str:
    if attempt.traceback:
        return attempt.traceback
    return f"{attempt.error_class}: {attempt.error}" if attempt.error_class else attempt.error or ""


def _block(title: str, text: str, style: str = "") -> Iterator[Text]:
    """Give a text of several lines under its title; folded, never cut at the terminal's edge."""
    yield Text()
    yield render.safe(title, "bold")
    shown = render.safe_block(text.rstrip("\n"), style, characters_max=BLOCK_CHARACTERS_MAX)
    shown.overflow = "fold"
    yield shown
