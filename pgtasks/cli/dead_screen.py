"""What `pgtasks dead list` and `dead show` print."""

from __future__ import annotations

import sys

from rich.text import Text

from pgtasks.cli import known, render
from pgtasks.cli.output import print_json
from pgtasks.cli.tasks_screen import Found, read_task
from pgtasks.errors import NotFound
from pgtasks.store import dead_letters
from pgtasks.store.dead_letters import DeadLetterRow, Filters
from pgtasks.store.session import SyncConnection, fetch_all


def read_list(connection: SyncConnection, filters: Filters, limit: int) -> list[DeadLetterRow]:
    """Read dead letters; raises NotFound when nothing fits a queue or name that nobody knows."""
    rows = fetch_all(connection, dead_letters.letters(filters, limit=limit))
    if not rows:
        known.require(connection, queue=filters.queue, name=filters.name)
    return rows


def show_list(rows: list[DeadLetterRow], *, limit: int, as_json: bool) -> None:
    """Print a list of dead letters."""
    if as_json:
        print_json({"dead": [row._asdict() for row in rows]})
        return
    if not rows:
        sys.stderr.write("no dead letters fit\n")
        return
    table = render.table(
        [
            ("id", "right"),
            ("queue", "left"),
            ("name", "left"),
            ("died (UTC)", "left"),
            ("reason", "left"),
            ("error", "left"),
        ],
        flexible=["queue", "name", "error"],
    )
    for row in rows:
        error = f"{row.error_class}: {row.error}" if row.error_class else row.error
        table.add_row(
            Text(str(row.id)),
            render.safe(row.queue),
            render.safe(row.name),
            Text(render.moment(row.finished_at)),
            render.safe(row.reason),
            render.safe(None if error is None else (error.splitlines() or [""])[0], "red"),
        )
    render.draw(table)
    if len(rows) == limit and sys.stdout.isatty():
        sys.stderr.write(f"the latest {limit:,}; --limit shows more\n")


def read_one(connection: SyncConnection, id: int) -> Found:
    """Read a dead letter; raises NotFound, which says what the task is instead."""
    found = read_task(connection, id)
    if found.task.status != "dead":
        raise NotFound(f"task {id} is no dead letter, it is {found.task.status} — see: pgtasks tasks show {id}")
    return found
