"""What `pgtasks queues list` and `workers list` print."""

from __future__ import annotations

import sys

from rich.text import Text

from pgtasks.cli import render
from pgtasks.cli.amounts import age, number
from pgtasks.cli.database import connected
from pgtasks.cli.output import print_json
from pgtasks.cli.status_screen import queue_document, worker_document, workers_table
from pgtasks.store import reading
from pgtasks.store.overview import QUEUES_MAX, WORKERS_MAX, Overview, read_overview
from pgtasks.store.session import fetch_all


def show(dsn: str | None, *, as_json: bool) -> None:
    """Print the queues."""
    with connected(dsn) as connection:
        overview = read_overview(connection)
    if as_json:
        print_json({"queues": [queue_document(overview, queue) for queue in overview.queues[:QUEUES_MAX]]})
        return
    if not overview.queues:
        sys.stderr.write("no queues yet: enqueue a task or start a worker\n")
        return
    _draw(overview)


def _draw(overview: Overview) -> None:
    table = render.table(
        [
            ("queue", "left"),
            ("state", "left"),
            ("waiting", "right"),
            ("running", "right"),
            ("scheduled", "right"),
            ("dead", "right"),
            ("workers", "right"),
        ],
        flexible=["queue"],
    )
    for queue in overview.queues:
        paused_at, now = queue.paused_at, overview.server.now
        state = "open" if paused_at is None else f"paused for {age((now - paused_at).total_seconds())}"
        table.add_row(
            render.safe(queue.queue),
            Text(state, style="" if paused_at is None else "yellow"),
            Text(number(queue.queued + queue.retrying, estimated=queue.estimated)),
            Text(number(queue.running)),
            Text(number(queue.scheduled, estimated=queue.estimated)),
            Text(number(queue.dead, estimated=queue.dead_estimated)),
            Text(number(queue.workers)),
        )
    render.draw(table)


def show_workers(dsn: str | None, *, as_json: bool) -> None:
    """Print the workers."""
    with connected(dsn) as connection:
        workers = fetch_all(connection, reading.workers(limit=WORKERS_MAX))
        now = fetch_all(connection, reading.server())[0].now
    if as_json:
        print_json({"workers": [worker_document(worker, now) for worker in workers]})
    elif workers:
        render.draw(workers_table(workers, now))
    else:
        sys.stderr.write("no workers; start one: pgtasks worker MODULE:APP\n")
