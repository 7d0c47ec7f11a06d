"""What `pgtasks status` shows: the queues, the workers, and what deserves a look, on one screen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pgtasks.cli import render
from pgtasks.cli.amounts import age, late, number, rate
from pgtasks.cli.database import connected, connection_to, database
from pgtasks.cli.exits import message_of, without_passwords
from pgtasks.cli.output import print_json
from pgtasks.cli.warnings import Warned, warnings_of
from pgtasks.errors import DatabaseUnavailable
from pgtasks.store.overview import QUEUES_MAX, Overview, QueueCounts, read_overview
from pgtasks.store.reading import WorkerRow
from pgtasks.store.schedule_reading import FiresRow

# More are listed by `pgtasks queues list`, and up to overview.QUEUES_MAX in JSON.
SCREEN_QUEUES_MAX = 40
COUNTS = ("scheduled", "queued", "running", "retrying", "dead")


def show_once(dsn: str | None, *, as_json: bool) -> None:
    """Read the status and print it, for people or as JSON."""
    with connected(dsn) as connection:
        overview = read_overview(connection)
    if as_json:
        print_json(document(overview))
    else:
        render.draw(screen(overview))


def watch(dsn: str | None, interval_s: float) -> None:
    """Show the status again and again, until Ctrl-C."""
    with database(dsn) as used:
        _watch(used, interval_s)


def _watch(dsn: str, interval_s: float) -> None:
    """Draw the status in place until Ctrl-C; a lost database is said and asked again."""
    console = render.console()
    if not console.is_terminal:
        while True:
            console.print(_screen_or_trouble(dsn))
            time.sleep(interval_s)
    from rich.live import Live

    with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        while True:
            live.update(_screen_or_trouble(dsn), refresh=True)
            time.sleep(interval_s)


def _screen_or_trouble(dsn: str) -> RenderableType:
    try:
        with connection_to(dsn) as connection:
            overview = read_overview(connection)
    except DatabaseUnavailable as error:
        return render.safe(f"trying again: {without_passwords(message_of(error))}", "red", characters_max=1000)
    return screen(overview)


# --- Drawing ---


def screen(overview: Overview) -> RenderableType:
    """Give everything as one drawing of at most 80 columns, where names allow that."""
    parts: list[RenderableType] = [_queues(overview), Text(), _workers(overview)]
    if overview.schedules.total:
        parts.extend([Text(), _schedules(overview)])
    warnings = warnings_of(overview)
    if warnings:
        parts.extend([Text(), _warnings(warnings)])
    return Group(*parts)


def _queues(overview: Overview) -> RenderableType:
    if not overview.queues:
        return Text("no queues yet: enqueue a task or start a worker")
    columns = ("queued", "running", "retrying", "sched.", "dead", "done/1h", "oldest", "rate/s")
    table = render.table([("queue", "left"), *((name, "right") for name in columns)], flexible=["queue"])
    shown = busiest(overview.queues)
    for queue in shown:
        table.add_row(_queue_name(queue), *_queue_cells(overview, queue))
    if len(overview.queues) > 1:
        table.add_section()
        more = len(overview.queues) - len(shown)
        title = f"all, and {more:,} more" if more else "all"
        table.add_row(Text(title, style="bold"), *_queue_cells(overview, _total(overview)))
    return table


def busiest(queues: Sequence[QueueCounts]) -> list[QueueCounts]:
    """Give the queues that fit on a screen, by name: where there are more, those with the most going on."""
    ranked = sorted(queues, key=lambda queue: -sum(getattr(queue, name) for name in COUNTS))
    return sorted(ranked[:SCREEN_QUEUES_MAX], key=lambda queue: queue.queue)


def _queue_name(queue: QueueCounts) -> Text:
    name = render.safe(queue.queue)
    # In front, where a narrow terminal does not cut it off.
    return Text("(paused) ", style="yellow").append_text(name) if queue.paused_at is not None else name


def _queue_cells(overview: Overview, queue: QueueCounts) -> list[Text]:
    def cell(count: int, style: str = "", *, estimated: bool = queue.estimated) -> Text:
        return Text(number(count, estimated=estimated), style=style if count else "dim")

    return [
        cell(queue.queued),
        cell(queue.running, "blue", estimated=False),
        cell(queue.retrying, "yellow"),
        cell(queue.scheduled),
        cell(queue.dead, "red", estimated=queue.dead_estimated),
        cell(queue.completed_last_hour, "green", estimated=queue.completed_estimated),
        Text(age(_waited_s(overview, queue))),
        Text(rate(queue.rate_per_s, estimated=queue.rate_estimated), style="" if queue.rate_per_s else "dim"),
    ]


def _workers(overview: Overview) -> RenderableType:
    if not overview.workers:
        return Text("no workers; start one: pgtasks worker MODULE:APP")
    return workers_table(overview.workers, overview.server.now)


def workers_table(workers: Sequence[WorkerRow], now: datetime) -> RenderableType:
    """Draw workers, the live ones first."""
    table = render.table(
        [("worker", "left"), ("queues", "left"), ("busy", "right"), ("state", "left"), ("seen", "right"),
         ("version", "left")],
        flexible=["worker", "queues"],
    )  # fmt: skip
    for worker in workers:
        state = worker_state(worker)
        seen_s = (now - worker.last_seen_at).total_seconds()
        shown = f"silent for {age(seen_s)}" if state == "silent" else state
        if worker.stuck:
            shown += f", {worker.stuck:,} stuck"
        table.add_row(
            render.safe(worker.name),
            render.safe(", ".join(worker.queues)),
            Text("-" if state == "silent" and not worker.busy else f"{worker.busy:,}/{worker.slots:,}"),
            Text(shown, style="red" if worker.stuck else _STATE_STYLES[state]),
            Text(f"{age(seen_s)} ago"),
            render.safe(worker.version),
        )
    return table


_STATE_STYLES = {"waiting": "", "busy": "blue", "draining": "yellow", "silent": "red"}


def worker_state(worker: WorkerRow) -> str:
    """Say what a worker does: silent (no heartbeat within its lease), draining, busy or waiting."""
    if not worker.alive:
        return "silent"
    if worker.draining:
        return "draining"
    return "busy" if worker.busy else "waiting"


def _warnings(warnings: Sequence[Warned]) -> RenderableType:
    return render.facts(
        [(Text("!", style="yellow"), render.safe(one.message, characters_max=1000)) for one in warnings]
    )


def _schedules(overview: Overview) -> Text:
    """Say in one line how the schedules do."""
    found, now = overview.schedules, overview.server.now
    line = Text(f"schedules: {found.total:,}")
    paused = found.total - found.enabled
    if paused:
        line.append(f", {paused:,} paused", style="yellow")
    for count, word in ((found.overdue, "overdue"), (found.problems, "with a problem")):
        if count:
            line.append(f", {count:,} {word}", style="red")
    if found.next_fire is not None:
        ahead_s = (found.next_fire - now) / timedelta(seconds=1)
        line.append(f"; the next fires {'now' if ahead_s < 1 else f'in {age(ahead_s)}'}")
    return line.append_text(_fires(overview))


def _fires(overview: Overview) -> Text:
    """Say what became of the slots of a day, or of as many as were counted."""
    found, now = overview.fires, overview.server.now
    span = age((now - found.since) / timedelta(seconds=1)) if found.limited else "24h"
    line = Text(f"\nwithin {span}: {found.fired:,} fired")
    line.append(f", {found.missed:,} missed", style="red" if found.missed else "")
    line.append(f", {found.skipped:,} skipped", style="yellow" if found.skipped else "")
    if found.late_s is not None:
        line.append(f"; at most {late(found.late_s)} late")
    return line


def _last_day(found: FiresRow) -> dict[str, Any]:
    return {**found._asdict(), "late_s": None if found.late_s is None else round(found.late_s, 3)}


# --- JSON ---


def document(overview: Overview) -> dict[str, Any]:
    """Give everything as one JSON document."""
    return {
        "queues": [queue_document(overview, queue) for queue in overview.queues[:QUEUES_MAX]],
        "workers": [worker_document(worker, overview.server.now) for worker in overview.workers],
        "schedules": {**overview.schedules._asdict(), "last_day": _last_day(overview.fires)},
        "warnings": [one.as_json() for one in warnings_of(overview)],
        "totals": {
            "queues": len(overview.queues),
        }
        | {
            key: value
            for key, value in queue_document(overview, _total(overview)).items()
            if key not in {"queue", "paused_at", "workers"}
        },
        "server": {
            "version": overview.server.version,
            "database": overview.server.database,
            "now": overview.server.now,
        },
    }


def queue_document(overview: Overview, queue: QueueCounts) -> dict[str, Any]:
    """Give one queue as an object of a JSON document."""
    waited_s = _waited_s(overview, queue)
    return {
        "queue": queue.queue,
        "paused_at": queue.paused_at,
        **{name: getattr(queue, name) for name in COUNTS},
        "estimated": queue.estimated or queue.dead_estimated,
        "completed_last_hour": queue.completed_last_hour,
        "completed_last_hour_estimated": queue.completed_estimated,
        "oldest_waiting_s": None if waited_s is None else round(waited_s, 3),
        "rate_per_s": round(queue.rate_per_s, 3),
        "rate_per_s_estimated": queue.rate_estimated,
        "workers": queue.workers,
    }


def worker_document(worker: WorkerRow, now: datetime) -> dict[str, Any]:
    """Give one worker as an object of a JSON document."""
    return {
        "id": worker.id,
        "name": worker.name,
        "queues": worker.queues,
        "slots": worker.slots,
        "busy": worker.busy,
        "stuck": worker.stuck,
        "alive": worker.alive,
        "state": worker_state(worker),
        "version": worker.version,
        "started_at": worker.started_at,
        "last_seen_at": worker.last_seen_at,
        "last_seen_s": round((now - worker.last_seen_at).total_seconds(), 3),
        "expired_leases": worker.expired_leases,
    }


def _total(overview: Overview) -> QueueCounts:
    queues = overview.queues
    waiting = [queue.oldest_waiting_since for queue in queues if queue.oldest_waiting_since is not None]
    return QueueCounts(
        "all",
        **{name: sum(getattr(queue, name) for queue in queues) for name in COUNTS},
        estimated=any(queue.estimated for queue in queues),
        dead_estimated=any(queue.dead_estimated for queue in queues),
        completed_last_hour=sum(queue.completed_last_hour for queue in queues),
        completed_estimated=any(queue.completed_estimated for queue in queues),
        rate_per_s=sum(queue.rate_per_s for queue in queues),
        rate_estimated=any(queue.rate_estimated for queue in queues),
        oldest_waiting_since=min(waiting, default=None),
    )


def _waited_s(overview: Overview, queue: QueueCounts) -> float | None:
    if queue.oldest_waiting_since is None:
        return None
    return (overview.server.now - queue.oldest_waiting_since) / timedelta(seconds=1)
