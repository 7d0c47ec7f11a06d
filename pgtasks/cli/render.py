"""Drawing on the terminal: every text that comes from data passes through `safe`.

rich reads markup in plain strings and lets control sequences through, so cells are always
`Text` made by `safe`, never strings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from pgtasks.cli.escape import escape, shortened

CELL_CHARACTERS_MAX = 200
# A pipe has no width: nothing is cut there but over-long single values.
PIPE_COLUMNS = 10_000
FLEXIBLE_WIDTH_LEAST = 7
COLUMN_GAP = 2

STATUS_STYLES = {
    "scheduled": "cyan",
    "queued": "",
    "running": "blue",
    "retrying": "yellow",
    "completed": "green",
    "cancelled": "dim",
    "dead": "red",
}


def console(*, stderr: bool = False) -> Console:
    """Give the terminal to draw on: plain when it is none, or when NO_COLOR asks for that."""
    stream = sys.stderr if stderr else sys.stdout
    plain = bool(os.environ.get("NO_COLOR")) or not stream.isatty()
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_COLUMNS
    return Console(
        file=stream,
        width=width,
        color_system=None if plain else "auto",
        force_terminal=stream.isatty(),
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )


def draw(drawing: RenderableType) -> None:
    """Print a drawing to standard output; in a pipe without the blanks that fill up a table."""
    to = console()
    if to.is_terminal:
        to.print(drawing)
        return
    with to.capture() as captured:
        to.print(drawing)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def safe(value: object, style: str = "", *, characters_max: int = CELL_CHARACTERS_MAX) -> Text:
    """Give text that came from data as it may be shown: escaped, cut when it is long, - for None."""
    if value is None:
        return Text("-", style="dim")
    return Text(shortened(escape(value), characters_max), style=style)


def safe_block(value: object, style: str = "", *, characters_max: int) -> Text:
    """Do the same for text of several lines, such as a traceback, which keeps its lines."""
    return Text(shortened(escape(value, keep_newlines=True), characters_max), style=style)


def status(value: str) -> Text:
    """Give a task's status in its colour."""
    return safe(value, STATUS_STYLES.get(value, ""))


class Listing:
    """A table whose rows stay on one line each.

    Where the terminal is narrow, only flexible columns give way, the widest first, and their
    texts are cut with …; rich would take from all columns, numbers included. Without a rule below
    its heading it has one line more than rows.
    """

    def __init__(
        self,
        columns: Sequence[tuple[str, Literal["left", "right"]]],
        *,
        flexible: Iterable[str],
        ruled: bool = True,
    ) -> None:
        self._columns, self._flexible, self._ruled = list(columns), frozenset(flexible), ruled
        self._rows: list[tuple[Text, ...]] = []
        self._styles: list[str] = []
        self._sections: set[int] = set()

    def add_row(self, *cells: Text, style: str = "") -> None:
        """Add a row: one cell for each column."""
        self._rows.append(cells)
        self._styles.append(style)

    def add_section(self) -> None:
        """Set the following rows apart."""
        self._sections.add(len(self._rows))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it in the width there is."""
        widths = self._widths(options.max_width)
        # A box has a column of its own between two columns; without one all of the gap is padding.
        box, padding = (SIMPLE_HEAD, (0, 1, 0, 0)) if self._ruled else (None, (0, COLUMN_GAP, 0, 0))
        made = Table(box=box, pad_edge=False, padding=padding, show_edge=False, header_style="bold")
        for (name, justify), width in zip(self._columns, widths, strict=True):
            made.add_column(Text(name), justify=justify, no_wrap=True, overflow="ellipsis", width=width)
        for number, row in enumerate(self._rows):
            if number in self._sections:
                made.add_section()
            made.add_row(*row, style=self._styles[number])
        yield made

    def _widths(self, available: int) -> list[int]:
        rows = [tuple(Text(name) for name, _ in self._columns), *self._rows]
        widths = [max(row[number].cell_len for row in rows) for number in range(len(self._columns))]
        bends = [number for number, (name, _) in enumerate(self._columns) if name in self._flexible]
        excess = sum(widths) + COLUMN_GAP * (len(widths) - 1) - available
        while excess > 0:
            widest = max(bends, key=lambda number: widths[number], default=None)
            if widest is None or widths[widest] <= FLEXIBLE_WIDTH_LEAST:
                break
            widths[widest] -= 1
            excess -= 1
        return widths


def table(
    columns: Sequence[tuple[str, Literal["left", "right"]]], *, flexible: Iterable[str] = (), ruled: bool = True
) -> Listing:
    """Make a table; only flexible columns give way where the terminal is narrow."""
    return Listing(columns, flexible=flexible, ruled=ruled)


def facts(pairs: Iterable[tuple[Text | str, Text | str]]) -> Table:
    """Make a list of names and values, one per line."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    made.add_column("name", style="bold", no_wrap=True)
    made.add_column("value", overflow="fold")
    for name, value in pairs:
        made.add_row(*(part if isinstance(part, Text) else Text(part) for part in (name, value)))
    return made


def moment(value: datetime | None) -> str:
    """Give a moment in UTC, to the second."""
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
