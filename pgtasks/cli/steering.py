"""Cancelling and retrying tasks by id, and saying what happened to each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import typer

from pgtasks.cli import exits
from pgtasks.cli.output import print_json
from pgtasks.store.session import Statement, SyncConnection, fetch_all

NOT_FOUND = "not_found"
CANCELLED = {
    "cancelled": "cancelled",
    "requested": "is running; its worker is told to stop it",
    "finished": "has finished already; nothing to cancel",
    NOT_FOUND: "there is no such task",
}
RETRIED = {
    "due": "is due now",
    "replayed": "was dead and is queued again with fresh attempts",
    "running": "is running; nothing was changed",
    "finished": "has finished; enqueue a new task to run it again",
    "unique_key_taken": "stays dead: a living task has its unique key",
    NOT_FOUND: "there is no such task",
}


def steer(
    connection: SyncConnection,
    ids: Sequence[int],
    statement: Callable[[int], Statement[tuple[str | None]]],
    sentences: Mapping[str, str],
    *,
    as_json: bool,
) -> None:
    """Do something to each task and say what happened; exits with 3 when one does not exist."""
    happened: dict[int, str] = {}
    for id in ids:
        ((result,),) = fetch_all(connection, statement(id))
        happened[id] = result or NOT_FOUND
        if not as_json:
            stream = sys.stderr if result is None else sys.stdout
            stream.write(f"task {id}: {sentences[happened[id]]}\n")
    if as_json:
        print_json({"tasks": [{"id": id, "result": result} for id, result in happened.items()]})
    if NOT_FOUND in happened.values():
        raise typer.Exit(exits.NOT_FOUND)
