"""`pgtasks doctor`: look at everything that is known to go wrong, and say what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import typer
from rich.console import Group
from rich.text import Text

from pgtasks import schema
from pgtasks.cli import findings as judged
from pgtasks.cli import options, render
from pgtasks.cli.database import database, given_listen_dsn, pooler
from pgtasks.cli.exits import FAILURE, message_of, without_passwords
from pgtasks.cli.findings import Finding
from pgtasks.cli.output import print_json
from pgtasks.errors import DatabaseError, DatabaseUnavailable, SchemaError
from pgtasks.store.diagnosis import HealthRow, read_diagnosis, read_health
from pgtasks.store.overview import read_overview
from pgtasks.store.selftest import hears, prepares
from pgtasks.store.session import SyncConnection, connect, is_about_rights

STYLES = {"ok": "green", "notice": "cyan", "warning": "yellow", "problem": "red"}
MESSAGE_CHARACTERS_MAX = 2000


def doctor(as_json: options.Json = False, dsn: options.Dsn = None) -> None:
    """Check the database, its settings and what goes on in it; exit 1 when something needs somebody.

    Every finding says what to do. Nothing is changed.
    """
    with database(dsn) as used:
        found = examine(used, pooler())
    healthy = judged.is_healthy(found)
    if as_json:
        print_json({"healthy": healthy, "findings": [finding.as_json() for finding in found]})
    else:
        render.draw(screen(found))
    if not healthy:
        raise typer.Exit(FAILURE)


def examine(dsn: str, kind: str) -> list[Finding]:
    """Look at everything; raises DatabaseUnavailable when there is nothing to look at."""
    connection = connect(dsn, "cli", pooler=kind)
    try:
        health, clock_s = _health(connection)
        found = [
            *judged.of_server(health, clock_s=clock_s),
            *_of_hearing(dsn, kind, is_pooled=health.is_pooled),
            judged.of_preparing(prepares=kind != "none" or prepares(dsn), pooler=kind),
        ]
        return [*found, *_of_schema(connection, health.username)]
    finally:
        connection.close()


def _of_hearing(dsn: str, kind: str, *, is_pooled: bool) -> Iterator[Finding]:
    """Have a notification sent, over the connection strings that workers with these variables use."""
    direct = given_listen_dsn(None)
    if direct is None:
        yield from judged.of_hearing(hears=hears(dsn, pooler=kind), is_pooled=is_pooled, pooler=kind)
        return
    try:
        yield judged.of_direct_hearing(hears=hears(dsn, pooler=kind, listen_dsn=direct))
    except DatabaseUnavailable as error:
        yield judged.of_direct_hearing(hears=False, error=without_passwords(message_of(error)))


def _health(connection: SyncConnection) -> tuple[HealthRow, float]:
    """Read the server's state, and by how many seconds this host's clock is ahead of its."""
    before = time.time()
    health = read_health(connection)
    return health, (before + time.time()) / 2 - health.now.timestamp()


def _of_schema(connection: SyncConnection, username: str) -> list[Finding]:
    """Look at the schema, if it is one that this version and this role can read."""
    found: list[Finding] = []
    try:
        state = schema.read(connection)
        schema.require(state)
        current = f"the schema is at revision {state.revision}, which this version needs"
        found.append(Finding("schema", "ok", current))
        found += judged.of_schema(read_diagnosis(connection), read_overview(connection))
    except SchemaError as error:
        message, _, remedy = str(error).partition("; run: ")
        found.append(Finding("schema", "problem", message, remedy or "pgtasks migrate"))
    except DatabaseError as error:
        if not is_about_rights(error):
            raise
        found.append(judged.of_missing_right(username, str(error)))
    return found


def screen(found: list[Finding]) -> Group:
    """Draw the findings: what needs somebody first, each with its remedy."""
    order: dict[str, int] = {"problem": 0, "warning": 1, "notice": 2, "ok": 3}
    parts: list[Any] = []
    for finding in sorted(found, key=lambda one: order[one.level]):
        line = Text(f"{finding.level:8}", style=STYLES[finding.level])
        line.append_text(render.safe(finding.message, characters_max=MESSAGE_CHARACTERS_MAX))
        line.overflow = "fold"
        parts.append(line)
        if finding.remedy is not None and finding.level != "ok":
            remedy = render.safe(f"        → {finding.remedy}", "dim", characters_max=MESSAGE_CHARACTERS_MAX)
            remedy.overflow = "fold"
            parts.append(remedy)
    open_count = sum(finding.level in {"warning", "problem"} for finding in found)
    verdict = "all is well" if not open_count else f"{open_count} of {len(found)} findings need somebody"
    parts.extend([Text(), Text(verdict, style="bold")])
    return Group(*parts)
