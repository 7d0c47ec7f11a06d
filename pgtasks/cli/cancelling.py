"""Cancelling what some filters match, in batches, and saying what was done.

Each batch is a transaction of its own, so that workers go on claiming meanwhile, and what is done
stays done when somebody presses Ctrl-C. Only tasks that were there at the beginning are looked at.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import typer

from pgtasks.cli import exits, known
from pgtasks.cli.burial import BATCH_ROWS, again
from pgtasks.cli.escape import escape
from pgtasks.cli.output import print_json
from pgtasks.errors import ConfigError
from pgtasks.store import cancelling
from pgtasks.store.cancelling import Filters
from pgtasks.store.session import SyncConnection, fetch_all

KINDS_SHOWN_MAX = 20

Kinds = Counter[tuple[str, str, str]]


@dataclass(slots=True)
class Report:
    """What was done; ``skipped`` tasks were held by somebody: a claim, another cancel."""

    cancelled: int = 0
    requested: int = 0
    skipped: int = 0

    @property
    def done(self) -> int:
        """How many tasks were cancelled or are told to stop."""
        return self.cancelled + self.requested


def cancel(
    connection: SyncConnection, filters: Filters, *, limit: int | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Cancel what the filters match, after asking; raises NotFound for a queue or name nobody knows."""
    ((until,),) = fetch_all(connection, cancelling.newest())
    if dry_run or not yes:
        kinds = _tally(connection, filters, until, limit)
        _require_known(connection, filters, found=kinds.total())
        if dry_run:
            _show_dry_run(kinds, filters, as_json=as_json)
            return
        _ask(kinds.total())
    report = _cancel(connection, filters, until, limit)
    _require_known(connection, filters, found=report.done + report.skipped)
    _show(report, as_json=as_json)


def _cancel(connection: SyncConnection, filters: Filters, until: int, limit: int | None) -> Report:
    report, after = Report(), 0
    while limit is None or report.done < limit:
        rows = BATCH_ROWS if limit is None else min(BATCH_ROWS, limit - report.done)
        batch = again(connection, cancelling.cancel(filters, after=after, until=until, limit=rows))
        if batch.last_id is None:
            break
        after = batch.last_id
        report.cancelled += batch.cancelled
        report.requested += batch.requested
        report.skipped += batch.matched - batch.cancelled - batch.requested
    return report


def _tally(connection: SyncConnection, filters: Filters, until: int, limit: int | None) -> Kinds:
    """Count by queue, name and status; no more than the limit."""
    kinds: Kinds = Counter()
    after = 0
    while limit is None or kinds.total() < limit:
        rows = fetch_all(connection, cancelling.tally(filters, after=after, until=until))
        if not rows:
            break
        after = rows[0].last_id
        for row in rows:
            if row.queue is not None and row.name is not None and row.status is not None:
                left = row.tasks if limit is None else limit - kinds.total()
                kinds[row.queue, row.name, row.status] += min(row.tasks, left)
    return +kinds


def _ask(count: int) -> None:
    """Ask whether to go on; raises ConfigError when there is nobody to ask."""
    if not count:
        return
    tasks = f"{count:,} task{'' if count == 1 else 's'}"
    if not sys.stdin.isatty():
        raise ConfigError(f"this would cancel {tasks} — add --yes to mean it")
    if not typer.confirm(f"Cancel {tasks}?", err=True):
        sys.stderr.write("nothing was cancelled\n")
        raise typer.Exit(exits.FAILURE)


def _require_known(connection: SyncConnection, filters: Filters, *, found: int) -> None:
    if not found:
        known.require(connection, queue=filters.queue, name=filters.name)


# --- Saying it ---


def _show(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json({"cancelled": report.cancelled, "requested": report.requested, "skipped": report.skipped})
        return
    if report.requested:
        sys.stdout.write(f"{report.requested:,} running: their workers are told to stop them\n")
    if report.cancelled or not report.requested:
        sys.stdout.write(f"{report.cancelled:,} cancelled\n")
    if report.skipped:
        sys.stdout.write(f"{report.skipped:,} skipped: they were just being claimed or changed; run it again\n")


def _show_dry_run(kinds: Kinds, filters: Filters, *, as_json: bool) -> None:
    total, is_running = kinds.total(), filters.status == "running"
    if as_json:
        print_json(
            {
                "dry_run": True,
                "cancelled": 0 if is_running else total,
                "requested": total if is_running else 0,
                "kinds": [
                    {"queue": queue, "name": name, "status": status, "count": count}
                    for (queue, name, status), count in kinds.most_common()
                ],
            }
        )
        return
    sys.stdout.write(f"{total:,} would be {'told to stop' if is_running else 'cancelled'}\n")
    for (queue, name, status), count in kinds.most_common(KINDS_SHOWN_MAX):
        sys.stdout.write(f"  {count:,}  {escape(f'{name} in queue {queue}, {status}')}\n")
    if len(kinds) > KINDS_SHOWN_MAX:
        sys.stdout.write(f"  … and {len(kinds) - KINDS_SHOWN_MAX:,} more kinds\n")
