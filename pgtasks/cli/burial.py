"""Replaying and purging dead letters in batches, and saying what was done.

Each batch is a transaction of its own, so a million of them never block a claim for long, and
what is done stays done when somebody presses Ctrl-C. Only what was dead at the start is taken:
a task that dies again meanwhile is not replayed in a circle.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field, replace
from typing import TypeVar

import typer

from pgtasks.cli import exits, known
from pgtasks.cli.escape import escape
from pgtasks.cli.output import print_json
from pgtasks.errors import ConfigError, DatabaseUnavailable
from pgtasks.store import dead_letters, statements
from pgtasks.store.dead_letters import Filters, TallyRow
from pgtasks.store.session import Statement, SyncConnection, fetch_all

BATCH_ROWS = 500
TRIES_MAX = 5
TAKEN_IDS_SHOWN_MAX = 20
# Two transactions met: the same batch works a moment later. Anything else would fail again.
_MET = ("40001", "40P01", "55P03")

R = TypeVar("R")


@dataclass(slots=True)
class Report:
    """What a replay or purge did; ``taken`` are ids whose unique_key a living task has."""

    done: int = 0
    taken: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)


def replay(connection: SyncConnection, filters: Filters, *, limit: int | None, dry_run: bool, as_json: bool) -> None:
    """Move dead letters back into the queue; exits with 3 when an id given is not dead."""
    _require_known(connection, filters)
    if dry_run:
        _show_dry_run(connection, filters, limit, "replayed", as_json=as_json)
        return
    report = Report(missing=_missing(connection, filters))
    filters, after = _until_now(connection, filters), 0
    while limit is None or report.done < limit:
        rows = BATCH_ROWS if limit is None else min(BATCH_ROWS, limit - report.done)
        batch = again(connection, dead_letters.replay(filters, after=after, limit=rows))
        if batch.last_id is None:
            break
        after = batch.last_id
        report.done += len(batch.replayed)
        report.taken.extend(batch.taken)
        _progress(report.done, "replayed", as_json=as_json)
    _show_report(report, "replayed", as_json=as_json)


def purge(
    connection: SyncConnection, filters: Filters, *, limit: int | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Delete dead letters, after asking; exits with 3 when an id given is not dead."""
    _require_known(connection, filters)
    if dry_run:
        _show_dry_run(connection, filters, limit, "purged", as_json=as_json)
        return
    report = Report(missing=_missing(connection, filters))
    filters, after = _until_now(connection, filters), 0
    if not yes:
        _ask(sum(row.dead_letters for row in fetch_all(connection, dead_letters.tally(filters, limit=limit))))
    while limit is None or report.done < limit:
        rows = BATCH_ROWS if limit is None else min(BATCH_ROWS, limit - report.done)
        batch = again(connection, dead_letters.purge(filters, after=after, limit=rows))
        if batch.last_id is None:
            break
        after = batch.last_id
        report.done += len(batch.purged)
        _progress(report.done, "purged", as_json=as_json)
    _show_report(report, "purged", as_json=as_json)


def _ask(count: int) -> None:
    """Ask whether to go on; raises ConfigError when there is nobody to ask."""
    if not sys.stdin.isatty():
        raise ConfigError(f"this would delete {count:,} dead letters for good — add --yes to mean it")
    if count and not typer.confirm(f"Delete {count:,} dead letters for good?", err=True):
        sys.stderr.write("nothing was deleted\n")
        raise typer.Exit(exits.FAILURE)


def _until_now(connection: SyncConnection, filters: Filters) -> Filters:
    if filters.before_time is not None:
        return filters
    return replace(filters, before_time=fetch_all(connection, statements.clock())[0])


def _require_known(connection: SyncConnection, filters: Filters) -> None:
    """Raise NotFound for a queue or name that has no dead letters and that nobody knows."""
    for only in (Filters(queue=filters.queue), Filters(name=filters.name)):
        if only != Filters() and not fetch_all(connection, dead_letters.letters(only, limit=1)):
            known.require(connection, queue=only.queue, name=only.name)


def _missing(connection: SyncConnection, filters: Filters) -> list[int]:
    if filters.ids is None:
        return []
    only = Filters(ids=filters.ids)
    there = {row.id for row in fetch_all(connection, dead_letters.letters(only, limit=len(filters.ids)))}
    return [id for id in filters.ids if id not in there]


def again(connection: SyncConnection, statement: Statement[R]) -> R:
    """Run a batch, again when it met somebody else's transaction."""
    for attempt in range(TRIES_MAX):
        try:
            return fetch_all(connection, statement)[0]
        except DatabaseUnavailable as error:
            if error.sqlstate not in _MET or attempt == TRIES_MAX - 1:
                raise
            time.sleep(0.1 * 2**attempt)
    raise AssertionError("the last attempt either returned or raised")


# --- Saying it ---


def _progress(done: int, verb: str, *, as_json: bool) -> None:
    if not as_json and sys.stderr.isatty() and done % (BATCH_ROWS * 20) == 0 and done:
        sys.stderr.write(f"{done:,} {verb} so far\n")


def _show_report(report: Report, verb: str, *, as_json: bool) -> None:
    skipped = [{"reason": "unique_key_taken", "count": len(report.taken), "ids": report.taken}] if report.taken else []
    if report.missing:
        skipped.append({"reason": "not_dead", "count": len(report.missing), "ids": report.missing})
    if as_json:
        count = len(report.taken) + len(report.missing)
        print_json({verb: report.done, "skipped": count, "skipped_reasons": skipped})
    else:
        sys.stdout.write(f"{report.done:,} {verb}\n")
        _say_skipped(report.taken, "a living task has their unique key; they stay dead")
        _say_skipped(report.missing, "no dead letter has such an id")
    if report.missing:
        raise typer.Exit(exits.NOT_FOUND)


def _say_skipped(ids: list[int], why: str) -> None:
    if ids:
        shown = ", ".join(map(str, ids[:TAKEN_IDS_SHOWN_MAX])) + (", …" if len(ids) > TAKEN_IDS_SHOWN_MAX else "")
        sys.stdout.write(f"{len(ids):,} skipped: {why} ({shown})\n")


def _show_dry_run(connection: SyncConnection, filters: Filters, limit: int | None, verb: str, *, as_json: bool) -> None:
    rows = fetch_all(connection, dead_letters.tally(filters, limit=limit))
    takes_keys = verb == "replayed"
    count = sum(_would(row, takes_keys=takes_keys) for row in rows)
    taken = sum(row.taken for row in rows) if takes_keys else 0
    if as_json:
        kinds = [
            {"queue": row.queue, "name": row.name, "reason": row.reason, "count": _would(row, takes_keys=takes_keys)}
            for row in rows
        ]
        print_json({"dry_run": True, verb: count, "skipped": taken, "kinds": kinds})
        return
    sys.stdout.write(f"{count:,} would be {verb}\n")
    for row in rows[:TAKEN_IDS_SHOWN_MAX]:
        kind = escape(f"{row.name} in queue {row.queue}, {row.reason.replace('_', ' ')}")
        sys.stdout.write(f"  {_would(row, takes_keys=takes_keys):,}  {kind}\n")
    if len(rows) > TAKEN_IDS_SHOWN_MAX:
        sys.stdout.write(f"  … and {len(rows) - TAKEN_IDS_SHOWN_MAX:,} more kinds\n")
    if taken:
        sys.stdout.write(f"{taken:,} would be skipped: a living task has their unique key\n")


def _would(row: TallyRow, *, takes_keys: bool) -> int:
    return row.dead_letters - row.taken if takes_keys else row.dead_letters
