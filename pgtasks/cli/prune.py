"""`pgtasks prune`: let old history go now, as every worker does by and by."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from pgtasks.cli import options
from pgtasks.cli.amounts import number
from pgtasks.cli.database import connected
from pgtasks.cli.output import print_json
from pgtasks.errors import ConfigError, DatabaseError
from pgtasks.settings import KEEP_S_MIN
from pgtasks.store.retention import COUNTED_ROWS_MAX, OldPartition, Pruned, count_old_rows, old_partitions, prune
from pgtasks.store.session import SyncConnection, fetch_all, fetch_one, is_about_time

# How often, and how long apart, a day that somebody reads just now is tried again.
TRIES_MAX, RETRY_S = 50, 0.2


def command(
    keep: Annotated[
        str, typer.Option("--keep", metavar="TIME", help="What is younger stays: 7d, 12h, at least an hour.")
    ] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and do nothing.")] = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Delete history and failed attempts that are older than --keep; dead letters stay.

    Workers do this by themselves every ten minutes, with their own --keep.
    """
    keep_s = options.duration(keep, "--keep")
    if keep_s < KEEP_S_MIN:
        raise ConfigError(f"--keep must be at least an hour, got {keep!r}")
    with connected(dsn) as connection:
        old = fetch_all(connection, old_partitions(keep_s=keep_s))
        if dry_run:
            rows = fetch_all(connection, count_old_rows(keep_s=keep_s))[0]
            _tell_plan(old, rows, as_json=as_json)
            return
        done = _prune(connection, keep_s, len(old))
    if as_json:
        print_json({"partitions": done.partitions, "rows": done.rows})
    else:
        typer.echo(f"{done.partitions:,} partitions and {done.rows:,} single rows are gone")


def _tell_plan(old: list[OldPartition], rows: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"partitions": [one._asdict() for one in old], "rows": rows})
        return
    for one in old:
        count = "an unknown number of" if one.rows is None else number(one.rows, estimated=True)
        typer.echo(f"{one.name}: {count} rows, {one.bytes / 2**20:,.0f} MiB")
    more = " or more" if rows >= COUNTED_ROWS_MAX else ""
    typer.echo(f"{len(old):,} partitions and {rows:,}{more} single rows would go")


def _prune(connection: SyncConnection, keep_s: float, expected: int) -> Pruned:
    """Prune until nothing old is left; each step is a transaction of its own."""
    partitions = rows = 0
    while any(step := _step(connection, keep_s)):
        partitions, rows = partitions + step.partitions, rows + step.rows
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{partitions:,} of {expected:,} partitions, {rows:,} rows")
            sys.stderr.flush()
    if sys.stderr.isatty() and (partitions or rows):
        sys.stderr.write("\r\033[K")
    return Pruned(partitions, rows)


def _step(connection: SyncConnection, keep_s: float) -> Pruned:
    """Do one step; a day that somebody reads just now is tried again for some seconds."""
    for tries in range(TRIES_MAX):
        try:
            return fetch_one(connection, prune(keep_s=keep_s)) or Pruned(0, 0)
        except DatabaseError as error:
            if not is_about_time(error) or tries == TRIES_MAX - 1:
                raise
            time.sleep(RETRY_S)
    raise AssertionError(TRIES_MAX)
