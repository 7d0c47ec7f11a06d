"""What `pgtasks tasks list` and `tasks show` print."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
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
    render.console().print(table)
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
        raise NotFound(f"there is no task {id} — finished tasks are kept for a time only; see: pgtasks tasks list")
    return Found(task, fetch_all(connection, listing.attempts(id, limit=ATTEMPTS_MAX)))


def show_task(found: Found, *, as_json: bool) -> None:
    """Print a task with its attempts."""
    if as_json:
        print_json(document(found))
        return
    console = render.console()
    console.print(render.facts(_facts(found.task)))
    for title, text in (("payload", found.task.payload), ("result", found.task.result)):
        if text is not None:
            _block(console, title, [render.safe_block(text, characters_max=BLOCK_CHARACTERS_MAX)])
    if found.task.error is not None:
        error = render.safe_block(_error_text(found.task), "red", characters_max=BLOCK_CHARACTERS_MAX)
        _block(console, "error", [error])
    for attempt in found.attempts:
        _block(console, _attempt_title(attempt), list(_attempt_lines(attempt)))


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
    yield "attempt", f"{task.attempt} of {task.max_attempts or 'as many as its handler allows'}"
    yield "priority", str(task.priority)
    yield "run at", render.moment(task.run_at)
    yield "created", render.moment(task.created_at)
    if task.started_at is not None:
        yield "started", render.moment(task.started_at)
    if task.finished_at is not None:
        took = _took(task)
        yield "finished", render.moment(task.finished_at) + (f" (took {took})" if took else "")
    if task.timeout_s is not None:
        yield "timeout", age(task.timeout_s)
    if task.unique_key is not None:
        yield "unique key", render.safe(task.unique_key, characters_max=BLOCK_CHARACTERS_MAX)
    if task.worker_id is not None:
        yield "worker", render.safe(task.worker or task.worker_id)
    if task.headers is not None:
        yield "headers", render.safe(task.headers, characters_max=BLOCK_CHARACTERS_MAX)


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


def _attempt_lines(attempt: AttemptRow) -> Iterator[Text]:
    if attempt.traceback:
        yield render.safe_block(attempt.traceback.rstrip("\n"), characters_max=BLOCK_CHARACTERS_MAX)
    elif attempt.error:
        kind = f"{attempt.error_class}: " if attempt.error_class else ""
        yield render.safe_block(f"{kind}{attempt.error}", characters_max=BLOCK_CHARACTERS_MAX)


def _block(console: Console, title: str, lines: Sequence[Text]) -> None:
    console.print()
    console.print(render.safe(title, "bold"))
    for text in lines:
        # Folded, never cut: whoever looks at one task wants all of it.
        text.overflow = "fold"
        console.print(text, soft_wrap=not console.is_terminal)
