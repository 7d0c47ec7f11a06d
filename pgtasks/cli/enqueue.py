"""`pgtasks enqueue`: add one task from a shell."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Annotated, Any, NoReturn, cast

import typer

from pgtasks.cli import options
from pgtasks.cli.database import connected
from pgtasks.errors import PayloadError
from pgtasks.model import OnConflict

PAYLOAD_CHARACTERS_MAX = 16 * 1024 * 1024


TaskName = Annotated[str, typer.Argument(metavar="NAME", help="The task's name.")]
Payload = Annotated[
    str | None,
    typer.Argument(metavar="[PAYLOAD]", help="Its arguments as a JSON object; - reads it from standard input."),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="The queue.  [default: that of the task's handler, or default]"),
]
Priority = Annotated[int | None, typer.Option("--priority", metavar="N", help="Higher runs first.")]
Delay = Annotated[
    str | None, typer.Option("--delay", metavar="TIME", help="Run after this time: seconds, or 15m, 2h, 1d.")
]
RunAt = Annotated[
    str | None, typer.Option("--run-at", metavar="WHEN", help="Run then: ISO 8601 with an offset from UTC.")
]
UniqueKey = Annotated[
    str | None, typer.Option("--unique-key", metavar="KEY", help="At most one living task has this key.")
]
MaxAttempts = Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="How often it may start.")]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Stop an attempt after this time: 90, 15m, 2h.")
]
OnConflictWord = Annotated[
    str | None,
    typer.Option(
        "--on-conflict",
        metavar="WHAT",
        help="When a living task has the key: ignore, raise or replace.  [default: ignore]",
    ),
]


def enqueue(
    name: TaskName,
    payload: Payload = None,
    *,
    queue: Queue = None,
    priority: Priority = None,
    delay: Delay = None,
    run_at: RunAt = None,
    unique_key: UniqueKey = None,
    max_attempts: MaxAttempts = None,
    timeout: Timeout = None,
    on_conflict: OnConflictWord = None,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Add one task and print its id."""
    from pgtasks.client import Client, Options
    from pgtasks.settings import check_name

    chosen = Options(
        queue=queue,
        priority=priority,
        delay=None if delay is None else options.duration(delay, "--delay"),
        run_at=None if run_at is None else options.instant(run_at, "--run-at"),
        unique_key=unique_key,
        max_attempts=max_attempts,
        timeout=None if timeout is None else options.duration(timeout, "--timeout"),
        on_conflict=cast("OnConflict", on_conflict or "ignore"),  # Options refuses any other word
    )
    task = chosen.task(check_name(name, "NAME"), read_payload(payload))
    with connected(dsn) as connection:
        added = Client(None).enqueue(task, replace(chosen, connection=connection))
        _tell_if_unknown(connection, name)
    if as_json:
        from pgtasks.cli.output import print_json

        print_json({"id": added.id, "created": added.created})
        return
    typer.echo(added.id)
    if not added.created:
        changed = "it was replaced if it was still waiting" if on_conflict == "replace" else "nothing was added"
        typer.echo(f"a living task has this unique key already: {changed}", err=True)


def read_payload(text: str | None) -> dict[str, Any]:
    """Read the payload; raises PayloadError, which says where it stops being JSON."""
    if text == "-":
        text = sys.stdin.read(PAYLOAD_CHARACTERS_MAX)
    if text is None:
        return {}
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise PayloadError(_explained(text, error)) from None
    except RecursionError:
        raise PayloadError("the payload is nested too deeply") from None
    except ValueError as error:
        raise PayloadError(f"the payload cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise PayloadError(f'the payload must be a JSON object of arguments, such as {{"a": 1}}, got {_kind(value)}')
    return value


def _no_constant(word: str) -> NoReturn:
    raise PayloadError(f"the payload holds {word}, which JSON does not have — use null or a string")


def _explained(text: str, error: json.JSONDecodeError) -> str:
    place = f"line {error.lineno} column {error.colno}" if "\n" in text else f"column {error.colno}"
    rest = text[error.pos : error.pos + 20].splitlines()
    near = f"near {rest[0]!r}" if rest and rest[0] else "at its end"
    hint = (
        " — keys and strings take double quotes; quote the whole for the shell with single ones"
        if ("quotes" in error.msg or "value" in error.msg)
        else ""
    )
    return f"the payload is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at {place}, {near}{hint}"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}[type(value)]


def _tell_if_unknown(connection: Any, name: str) -> None:
    """Say that no worker has registered this name, which is often a typing error."""
    from pgtasks.store import reading
    from pgtasks.store.session import fetch_all

    known = [row.name for row in fetch_all(connection, reading.known_names())]
    if known and name not in known:
        from pgtasks.cli.escape import escape

        hint = options.did_you_mean(name, known)
        typer.echo(escape(f"note: no worker has registered a task named {name!r} yet{hint}"), err=True)
