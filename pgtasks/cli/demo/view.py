"""How the demo is shown: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pgtasks.cli import render
from pgtasks.cli.demo.promises import Promise
from pgtasks.model import STATUSES, Status
from pgtasks.store.demonstrating import DemoTask
from pgtasks.store.reading import WorkerRow

SHOWN: tuple[Status, ...] = ("queued", "running", "retrying", "completed", "dead")
PLAIN_INTERVAL_S = 1.0


class View(Protocol):
    """Something that shows what happens."""

    def step(self, text: str) -> None:
        """Tell what happens next."""

    def code(self, lines: Iterable[str]) -> None:
        """Show what is typed or run."""

    def note(self, text: str) -> None:
        """Tell what came of it."""

    def board(self, tasks: Sequence[DemoTask], workers: Sequence[WorkerRow]) -> None:
        """Show how things stand."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; nothing is shown after that."""


class _Lines:
    """What both views have in common: numbered steps with what belongs to them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._steps = 0

    def step(self, text: str) -> None:
        """Tell what happens next."""
        self._steps += 1
        self.console.print(Text(f"{self._steps}. {text}", style="bold"))

    def code(self, lines: Iterable[str]) -> None:
        """Show what is typed or run."""
        for line in lines:
            self.console.print(Text(f"     {line}", style="cyan"), soft_wrap=True)

    def note(self, text: str) -> None:
        """Tell what came of it."""
        self.console.print(render.safe(f"   {text}"))


class LiveView(_Lines):
    """For a terminal: the text scrolls by above a table that stays and changes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def board(self, tasks: Sequence[DemoTask], workers: Sequence[WorkerRow]) -> None:
        """Draw the table."""
        self._live.update(Group(Text(), _table(tasks), Text(), *(_worker_line(worker) for worker in workers)))


class PlainView(_Lines):
    """For a pipe or a log: a line whenever the counts have changed, at most one per second."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._began = time.monotonic()
        self._shown_at = float("-inf")
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def board(self, tasks: Sequence[DemoTask], workers: Sequence[WorkerRow]) -> None:
        """Print the counts, if they are news."""
        now = time.monotonic()
        counts = Counter(task.status for task in tasks)
        alive = sum(worker.alive for worker in workers)
        line = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status]) or "no tasks"
        line += f"; {alive} of {len(workers)} workers alive"
        if line != self._last and now - self._shown_at >= PLAIN_INTERVAL_S:
            self.note(f"{now - self._began:5.1f} s  {line}")
            self._last, self._shown_at = line, now


def view_for(console: Console) -> LiveView | PlainView:
    """Give the view that fits where the demo is shown."""
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)


def summarize(console: Console, promises: Sequence[Promise], seconds: float) -> None:
    """Print each promise with a check mark or a cross, and what was seen in the database."""
    console.print(Text("What the database says:", style="bold"))
    for promise in promises:
        mark, style = ("✓", "green") if promise.kept else ("✗", "bold red")
        console.print(Text(f" {mark} ", style=style).append(promise.promise, style=""))
        console.print(render.safe(f"     {promise.seen}", "dim" if promise.kept else "red"))
    kept = sum(promise.kept for promise in promises)
    console.print()
    verdict = "bold green" if kept == len(promises) else "bold red"
    console.print(Text(f"{kept} of {len(promises)} promises kept, in {seconds:.0f} s.", style=verdict))


def _table(tasks: Sequence[DemoTask]) -> RenderableType:
    made = render.table([("task", "left"), *((status, "right") for status in SHOWN)])
    counts = Counter((task.name, task.status) for task in tasks)
    for name in dict.fromkeys(task.name for task in tasks):
        cells = [counts[name, status] for status in SHOWN]
        made.add_row(
            render.safe(name),
            *(
                Text(str(cell), style=render.STATUS_STYLES.get(status, "")) if cell else Text("·", style="dim")
                for status, cell in zip(SHOWN, cells, strict=True)
            ),
        )
    return made


def _worker_line(worker: WorkerRow) -> Text:
    style, state = ("green", f"{worker.busy} running") if worker.alive else ("red", "silent: its lease has expired")
    return Text(" ● ", style=style).append_text(render.safe(f"worker {worker.name}: {state}", ""))
