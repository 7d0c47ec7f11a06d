"""Drawing `pgtasks top`: a picture and a view become as many lines as the terminal has, no more.

Four lists share the height, each with its heading: queues, running tasks, failures, workers.
A list that is too long for its share is a window around what is selected, or its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from pgtasks.cli import render
from pgtasks.cli.amounts import age, number, rate
from pgtasks.cli.status_screen import worker_state
from pgtasks.cli.top_state import Picture, Selected, View
from pgtasks.store.overview import QueueCounts
from pgtasks.store.reading import WorkerRow
from pgtasks.store.watching import RUNNING_MAX, FailureRow, RunningTask

T = TypeVar("T")

ERROR_CHARACTERS_MAX = 200
# The line at the top and the one below all, the headings, and the blank lines between lists.
_AROUND = 2 + 4 + 3
# What each list gets at least, where the terminal has 24 lines.
_LEAST = (4, 5, 3, 3)
_MARK, _NO_MARK = ">", " "
_KEYS = "q quit  s sort  j/k tab select  p pause  c cancel  space freeze  ? help"
_HELP = (
    ("j k, arrows", "select the next or previous queue or running task; page up and down: by ten"),
    ("tab", "go from the queues to the running tasks, and back"),
    ("s", "sort running tasks by age, queue, name or worker"),
    ("p", "pause the selected queue, or that of the selected task; resume it when it is paused"),
    ("c", "cancel the selected task; asks first"),
    ("space", "freeze what is shown; nothing is read meanwhile"),
    ("q", "quit"),
)
_STATE_STYLES = {"waiting": "", "busy": "blue", "draining": "yellow", "silent": "red"}
_OUTCOME_STYLES = {"failed": "red", "timed_out": "yellow", "cancelled": "dim", "worker_lost": "magenta"}


class Screen:
    """The whole terminal: a body that is cut where it ends, and a line below it."""

    def __init__(self, body: RenderableType, footer: Text, height: int) -> None:
        self._body, self._footer, self._height = body, footer, height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw exactly as many lines as there are."""
        free = options.update(height=None)
        lines = console.render_lines(self._body, free, pad=True)[: self._height - 1]
        lines += [[Segment(" " * options.max_width)]] * (self._height - 1 - len(lines))
        self._footer.truncate(options.max_width, overflow="ellipsis", pad=True)
        lines += console.render_lines(self._footer, free, pad=True)[:1]
        for at, line in enumerate(lines):
            yield from line
            if at < len(lines) - 1:
                yield Segment.line()


def screen(picture: Picture | None, view: View, *, interval_s: float, height: int) -> RenderableType:
    """Give everything as one drawing of ``height`` lines."""
    if view.help:
        body: RenderableType = Group(Text("pgtasks top", style="bold"), Text(), render.facts(_HELP))
    elif picture is None:
        body = Text("looking …" if not view.trouble else "")
    else:
        body = _body(picture, view, interval_s, height)
    return Screen(body, _footer(view), height)


def _body(picture: Picture, view: View, interval_s: float, height: int) -> RenderableType:
    tasks = picture.running_by(view.sort)
    wanted = [max(1, len(rows)) for rows in (picture.queues, tasks, picture.failures, picture.workers)]
    lines = shares(height - _AROUND, wanted, _LEAST)
    return Group(
        _header(picture, view, interval_s),
        _queues(picture, view.selected, lines[0]),
        Text(),
        _running(picture, tasks, view, lines[1]),
        Text(),
        _failures(picture.failures[: lines[2]], picture.now),
        Text(),
        _workers(picture.workers[: lines[3]], picture.now),
    )


def shares(lines: int, wanted: Sequence[int], least: Sequence[int]) -> list[int]:
    """Share lines among lists: to each the least it gets, or wants, and then one by one to who wants more."""
    given = [min(want, at_least) for want, at_least in zip(wanted, least, strict=True)]
    while sum(given) < lines and given != list(wanted):
        for at, want in enumerate(wanted):
            if given[at] < want and sum(given) < lines:
                given[at] += 1
    while sum(given) > max(lines, len(given)):
        given[given.index(max(given))] -= 1
    return given


def window(rows: Sequence[T], at: int | None, lines: int) -> Sequence[T]:
    """Give the rows that fit, with the one at ``at`` in their middle as far as the ends allow."""
    start = 0 if at is None else min(max(0, at - lines // 2), max(0, len(rows) - lines))
    return rows[start : start + lines]


def _header(picture: Picture, view: View, interval_s: float) -> Text:
    line = Text("pgtasks top", style="bold")
    line.append_text(Text.assemble("  ", render.safe(picture.database, characters_max=30), style="not bold"))
    line.append(f"  PostgreSQL {picture.version.split()[0]}  {picture.now:%H:%M:%S}Z  ", style="not bold")
    if view.frozen:
        return line.append("frozen: space goes on", style="reverse")
    return line.append(f"every {interval_s:g}s", style="not bold")


def _footer(view: View) -> Text:
    if view.asking is not None:
        task = view.asking
        question = Text(f"cancel task {task.id}, ", style="bold")
        question.append_text(render.safe(task.name, characters_max=30)).append("? y/n")
        return question
    if view.trouble:
        return render.safe(view.trouble, "red", characters_max=1000)
    return render.safe(view.said, "bold") if view.said else Text(_KEYS, style="dim")


# --- The lists ---


def _queues(picture: Picture, selected: Selected | None, lines: int) -> RenderableType:
    columns = ("queued", "running", "retrying", "sched.", "dead", "oldest", "done/s", "fail/s")
    table = render.table([(" queue", "left"), *((name, "right") for name in columns)], flexible=[" queue"], ruled=False)
    chosen = selected.queue if selected is not None and selected.task_id is None else None
    names = [queue.queue for queue in picture.queues]
    done, failed = picture.rates("completed"), picture.rates("failed")
    for queue in window(picture.queues, names.index(chosen) if chosen in names else None, lines):
        is_chosen = queue.queue == chosen
        table.add_row(
            _marked(_queue_name(queue), is_chosen=is_chosen),
            *_queue_cells(picture.now, queue),
            _rate(done.get(queue.queue, 0.0), "green"),
            _rate(failed.get(queue.queue, 0.0), "red"),
            style="reverse" if is_chosen else "",
        )
    return table if names else _without_rows(table, "no queues yet: enqueue a task or start a worker")


def _queue_name(queue: QueueCounts) -> Text:
    name = render.safe(queue.queue)
    return Text("(paused) ", style="yellow").append_text(name) if queue.paused_at is not None else name


def _queue_cells(now: datetime, queue: QueueCounts) -> list[Text]:
    def cell(count: int, style: str = "", *, estimated: bool = queue.estimated) -> Text:
        return Text(number(count, estimated=estimated), style=style if count else "dim")

    return [
        cell(queue.queued),
        cell(queue.running, "blue", estimated=False),
        cell(queue.retrying, "yellow"),
        cell(queue.scheduled),
        cell(queue.dead, "red", estimated=queue.dead_estimated),
        Text(_since(now, queue.oldest_waiting_since)),
    ]


def _running(picture: Picture, tasks: Sequence[RunningTask], view: View, lines: int) -> RenderableType:
    total = max(len(tasks), sum(queue.running for queue in picture.queues))
    more = f", {RUNNING_MAX} oldest" if total > len(tasks) >= RUNNING_MAX else ""
    title = f" running: {total:,}{more}, by {view.sort}"
    table = render.table(
        [(title, "left"), ("age", "right"), ("att.", "right"), ("queue", "left"), ("name", "left"), ("worker", "left")],
        flexible=["queue", "name", "worker"],
        ruled=False,
    )
    chosen = None if view.selected is None else view.selected.task_id
    ids = [task.id for task in tasks]
    for task in window(tasks, ids.index(chosen) if chosen in ids else None, lines):
        table.add_row(
            _marked(Text(str(task.id)), is_chosen=task.id == chosen),
            Text(_since(picture.now, task.claimed_at), style="yellow" if task.is_cancelled else ""),
            Text(str(task.attempt), style="yellow" if task.attempt > 1 else ""),
            render.safe(task.queue),
            _cancelling(render.safe(task.name), is_cancelled=task.is_cancelled),
            render.safe(task.worker or task.worker_id),
            style="reverse" if task.id == chosen else "",
        )
    return table if tasks else _without_rows(table, "nothing runs")


def _cancelling(name: Text, *, is_cancelled: bool) -> Text:
    return Text("(stopping) ", style="yellow").append_text(name) if is_cancelled else name


def _failures(failures: Sequence[FailureRow], now: datetime) -> RenderableType:
    table = render.table(
        [(" failed", "left"), ("task", "right"), ("att.", "right"), ("name", "left"), ("error", "left")],
        flexible=["name", "error"],
        ruled=False,
    )
    for failure in failures:
        table.add_row(
            Text(f" {_since(now, failure.finished_at)} ago"),
            Text(str(failure.task_id)),
            Text(str(failure.attempt)),
            render.safe(failure.name, characters_max=24),
            render.safe(
                error_line(failure), _OUTCOME_STYLES.get(failure.outcome, ""), characters_max=ERROR_CHARACTERS_MAX
            ),
        )
    return table if failures else _without_rows(table, "nothing failed within the last minute, or since you look")


def error_line(failure: FailureRow) -> str:
    """Give the first line of an error with its class, or how the attempt ended when it has none."""
    line = next((line.strip() for line in (failure.error or "").splitlines() if line.strip()), "")
    return ": ".join(part for part in (failure.error_class, line) if part) or failure.outcome.replace("_", " ")


def _workers(workers: Sequence[WorkerRow], now: datetime) -> RenderableType:
    table = render.table(
        [(" worker", "left"), ("queues", "left"), ("busy", "right"), ("stuck", "right"), ("state", "left"),
         ("seen", "right")],
        flexible=[" worker", "queues"],
        ruled=False,
    )  # fmt: skip
    for worker in workers:
        state = worker_state(worker)
        table.add_row(
            Text(" ").append_text(render.safe(worker.name)),
            render.safe(", ".join(worker.queues)),
            Text("-" if state == "silent" and not worker.busy else f"{worker.busy:,}/{worker.slots:,}"),
            Text(f"{worker.stuck:,}", style="red" if worker.stuck else "dim"),
            Text(state, style=_STATE_STYLES[state]),
            Text(f"{_since(now, worker.last_seen_at)} ago"),
        )
    return table if workers else _without_rows(table, "no workers; start one: pgtasks worker MODULE:APP")


def _without_rows(heading: RenderableType, said: str) -> RenderableType:
    return Group(heading, Text(f" {said}", style="dim", no_wrap=True, overflow="ellipsis"))


def _marked(text: Text, *, is_chosen: bool) -> Text:
    return Text(_MARK if is_chosen else _NO_MARK).append_text(text)


def _rate(per_s: float, style: str) -> Text:
    return Text(rate(per_s), style=style if per_s else "dim")


def _since(now: datetime, moment: datetime | None) -> str:
    return "-" if moment is None else age((now - moment) / timedelta(seconds=1))
