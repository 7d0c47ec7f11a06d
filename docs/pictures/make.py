"""Draws the pictures of the documentation anew, from a small database of its own.

    .venv/bin/python docs/pictures/make.py

Run it after a change to what `pgtasks status` or `pgtasks top` shows, and commit the result. It
needs what the tests need: a PostgreSQL of the extra `embedded`.
"""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from pgtasks import schema
from pgtasks.cli import status_screen, top_screen
from pgtasks.cli.top_state import Selected, View, absorb
from pgtasks.embedded import FAST_OPTIONS, PrivateServer
from pgtasks.store.overview import read_overview
from pgtasks.store.session import SyncConnection, connect
from pgtasks.store.watching import read_look

HERE = Path(__file__).parent
COLUMNS, LINES = 80, 24


def main() -> None:
    """Write every picture."""
    with PrivateServer(options=FAST_OPTIONS) as server:
        with connect(server.dsn_for("postgres"), "cli") as connection:
            connection.execute("CREATE DATABASE shop")
        dsn = server.dsn_for("shop")
        schema.migrate(dsn)
        with connect(dsn, "cli") as connection:
            for statement in HERE.joinpath("stage.sql").read_text(encoding="utf-8").split(";\n"):
                connection.execute(statement.encode())
            write("status", "pgtasks status", status_screen.screen(read_overview(connection)))
            write("top", "pgtasks top", top(connection))
            # Ten minutes later: one worker is gone, and somebody has paused a queue.
            connection.execute(
                "UPDATE pgtasks.workers SET last_seen_at = now() - interval '75 s' WHERE name = 'web-2:981'"
            )
            connection.execute("UPDATE pgtasks.leases SET expires_at = now() - interval '45 s' WHERE id = 2")
            connection.execute("SELECT pgtasks.pause('reports')")
            connection.execute("UPDATE pgtasks.queues SET paused_at = now() - interval '4 min' WHERE name = 'reports'")
            write("status-watch", "pgtasks status --watch", status_screen.screen(read_overview(connection)))


def top(connection: SyncConnection) -> RenderableType:
    """Give the live view with a task that somebody is about to cancel."""
    picture = absorb(None, read_look(connection, None))
    oldest = picture.running_by("age")[0]
    view = View(selected=Selected(oldest.queue, oldest.id), asking=oldest)
    return top_screen.screen(picture, view, interval_s=2, height=LINES)


def write(name: str, command: str, drawing: RenderableType) -> None:
    """Write a picture of a terminal that shows a drawing below the command that made it."""
    console = Console(width=COLUMNS, height=LINES, record=True, file=StringIO(), force_terminal=True)
    console.print(Group(Text(f"$ {command}\n", style="bold"), drawing) if name == "status" else drawing)
    picture = console.export_svg(title=command, unique_id=f"pgtasks-{name}")
    # The reader's own monospace font does; a page that is read should not fetch one from elsewhere.
    picture = re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    HERE.joinpath(f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
