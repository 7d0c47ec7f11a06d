"""From outcomes to the database: batched, fenced, offered until accepted or refused.

Outcomes are collected and written by size or time, whichever comes first, on a connection of
their own, so that writing overlaps the next claim. While one batch is being written the next
one grows, which sizes batches by itself when the database is slow.

A batch whose reply is lost is offered again as it is. That is safe: every row is written only
under its lease, and a task that does not come back is looked up by (id, lease). Found in
history, attempts or dead letters, it was our own earlier write and counts as done; found
nowhere, its lease was lost and the result is dropped, which is said once.

One row does not hold up the others. A batch that PostgreSQL refuses for its data is halved
until the bad row stands alone; a completion then goes in without its result, and what still
does not go in is left to the sweep. A batch that ran into a lock (an open transaction of
somebody who cancelled, changed or refers to a running task) is written without the locked
rows, which are offered again every second. Any other error concerns all rows alike: the
batch is kept and offered again.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast
from uuid import UUID

from pgtasks import events
from pgtasks.engine.attempt import Attempt
from pgtasks.engine.leases import Leases
from pgtasks.engine.periodic import wait_for_any
from pgtasks.engine.runners import Finished
from pgtasks.errors import DatabaseError, LeaseLost
from pgtasks.outcome import Cancelled, Completed, Dead, Lost, Outcome, Released, RetryIn, Snoozed
from pgtasks.store import statements
from pgtasks.store.link import Link
from pgtasks.store.session import Statement, is_about_data, is_about_time
from pgtasks.store.statements import Moved

LINGER_S = 0.01
IDLE_S = 60.0
BATCH_MAX = 1000
BLOCKED_S = 1.0


Batch = tuple[str, Finished]  # the statement's kind, and its rows


class Completer:
    """Writes outcomes; one batch at a time."""

    def __init__(self, link: Link, worker_id: UUID, leases: Leases, batch_enough: int) -> None:
        self._link, self._worker_id, self._leases = link, worker_id, leases
        self._batch_enough = max(1, min(batch_enough, BATCH_MAX))
        self._waiting: Finished = []
        self._writing: list[Batch] = []
        self._blocked: list[Batch] = []
        self._blocked_until = 0.0
        self.arrived = asyncio.Event()
        self._enough = asyncio.Event()
        self.hurry = False
        self.lost = 0
        self.written = 0

    @property
    def backlog(self) -> int:
        """How many outcomes are not in the database yet."""
        return len(self._waiting) + sum(len(part) for _, part in (*self._writing, *self._blocked))

    def add(self, finished: Finished) -> None:
        """Take outcomes on the engine's loop."""
        self._waiting.extend(finished)
        self.arrived.set()
        if len(self._waiting) >= self._batch_enough:
            self._enough.set()

    async def flush(self) -> float:
        """Do one round: collect for a moment, then write all there is."""
        if self._blocked and time.monotonic() >= self._blocked_until:
            await self._unblock()
        if not self._writing:
            if not self._waiting:
                return self._rest_s()
            if len(self._waiting) < self._batch_enough and not self.hurry:
                await wait_for_any(LINGER_S, self._enough)
            self._enough.clear()
            self._writing = self._take()
        while self._writing:
            kind, part = self._writing[0]
            await self._write(kind, part)
            self._writing.pop(0)
        return 0.0 if self._waiting else self._rest_s()

    def _rest_s(self) -> float:
        return max(0.001, self._blocked_until - time.monotonic()) if self._blocked else IDLE_S

    def _take(self) -> list[Batch]:
        """Sort the waiting outcomes by statement, each part by task id: one lock order for all."""
        waiting, self._waiting = self._waiting, []
        parts: dict[str, Finished] = {}
        for item in waiting:
            parts.setdefault(_STATEMENT_OF[type(item[1])], []).append(item)
        self._leave_to_sweep(parts.pop("drop", []))
        batches: list[Batch] = []
        for kind, part in parts.items():
            part.sort(key=_key)
            batches += [(kind, part[start : start + BATCH_MAX]) for start in range(0, len(part), BATCH_MAX)]
        return batches

    async def _write(self, kind: str, part: Finished) -> None:
        """Write one batch and account for it; raises DatabaseUnavailable to be called again."""
        try:
            moved = await self._run(kind, part)
        except DatabaseError as error:
            if is_about_time(error):
                await self._write_around(kind, part, error)
            elif is_about_data(error):
                await self._write_halves(kind, part, error)
            else:
                raise
            return
        if moved is not None and len(moved) < len(part):
            taken = set(moved)
            await self._account_missing(kind, [item for item in part if item[0].task.id not in taken])
        self._settle(part)

    def _settle(self, part: Finished) -> None:
        """Take these attempts off their leases, each once however often it was offered."""
        for attempt, _ in part:
            if not attempt.settled:
                attempt.settled = True
                self.written += 1
                self._leases.close_tasks([attempt.task.lease_id])

    def _leave_to_sweep(self, part: Finished) -> None:
        """Take these attempts off their leases without an outcome in the database."""
        for attempt, _ in part:
            if not attempt.settled:
                attempt.settled = True
                self._leases.leave_to_sweep(attempt.task.lease_id)

    async def _run(self, kind: str, part: Finished) -> list[int] | None:
        emptied = self._leases.emptied_by(attempt.task.lease_id for attempt, _ in part if not attempt.settled)
        outcomes = [outcome for _, outcome in part]
        reply = await self._link.fetch_one(_statement(kind, self._worker_id, _keys(part), outcomes, emptied))
        return reply.ids if reply is not None else []

    async def _account_missing(self, kind: str, missing: Finished) -> None:
        """Tell our own earlier writes from lost leases; a task that is to be given back is no loss."""
        if kind == "release":
            events.debug("not given back, it had been already", count=len(missing))
            return
        ours = set(await self._link.fetch_all(statements.recognise(_keys(missing))))
        refused = [attempt for attempt, _ in missing if attempt.task.id not in ours]
        self.lost += len(refused)
        # Of those that were stopped for it the executor has spoken.
        lost = [attempt.task.id for attempt in refused if not isinstance(attempt.stop_reason, LeaseLost)]
        if lost:
            events.warning(
                "lease lost, result refused",
                count=len(lost),
                tasks=lost[:10],
                advice="another worker may have run these tasks again",
            )

    async def _write_around(self, kind: str, part: Finished, error: DatabaseError) -> None:
        """Write what nobody has locked and put the rest aside; raises the error if nothing is locked."""
        free, locked = await self._sorted_by_lock(part)
        if not locked:
            raise error
        if not self._blocked:
            events.warning(
                "outcomes wait for a lock",
                tasks=[attempt.task.id for attempt, _ in locked][:10],
                count=len(locked),
                advice="an open transaction elsewhere has locked rows of running tasks",
            )
        # Noted only now: until here an error leaves the whole batch to be offered again.
        if free:
            await self._write(kind, free)
        self._blocked.append((kind, locked))
        self._blocked_until = time.monotonic() + BLOCKED_S

    async def _unblock(self) -> None:
        """Offer what was locked and is free by now."""
        self._blocked_until = time.monotonic() + BLOCKED_S
        for kind, part in list(self._blocked):
            free, locked = await self._sorted_by_lock(part)
            self._blocked.remove((kind, part))
            if locked:
                self._blocked.append((kind, locked))
            if free:
                self._writing.append((kind, free))

    async def _sorted_by_lock(self, part: Finished) -> tuple[Finished, Finished]:
        """Split a batch into the rows that can be written now and those that somebody has locked."""
        locked = set(await self._link.fetch_all(statements.blocked(_keys(part))))
        return (
            [item for item in part if item[0].task.id not in locked],
            [item for item in part if item[0].task.id in locked],
        )

    async def _write_halves(self, kind: str, part: Finished, error: DatabaseError) -> None:
        if len(part) > 1:
            middle = len(part) // 2
            await self._write(kind, part[:middle])
            await self._write(kind, part[middle:])
            return
        attempt, outcome = part[0]
        first_line = str(error).splitlines()[0]
        if isinstance(outcome, Completed) and outcome.result is not None:
            note = f"result not stored: {first_line}"
            await self._write(kind, [(attempt, Completed(None, note))])
            return
        events.error(
            "outcome refused by the database", task_id=attempt.task.id, task=attempt.task.name, error=first_line
        )
        self._leave_to_sweep(part)


_STATEMENT_OF: dict[type, str] = {
    Completed: "complete",
    RetryIn: "retry",
    Dead: "bury",
    Cancelled: "cancelled",
    Snoozed: "release",
    Released: "release",
    Lost: "drop",
}


def _key(item: tuple[Attempt, Outcome]) -> tuple[int, int]:
    return item[0].task.id, item[0].task.lease_id


def _keys(part: Finished) -> list[tuple[int, int]]:
    return [(attempt.task.id, attempt.task.lease_id) for attempt, _ in part]


def _statement(
    kind: str, worker_id: UUID, tasks: list[tuple[int, int]], outcomes: list[Outcome], emptied: list[int]
) -> Statement[Moved]:
    match kind:
        case "complete":
            return statements.complete(worker_id, tasks, cast("list[Completed]", outcomes), emptied)
        case "retry":
            return statements.retry(worker_id, tasks, cast("list[RetryIn]", outcomes), emptied)
        case "bury":
            return statements.bury(worker_id, tasks, cast("list[Dead]", outcomes), emptied)
        case "cancelled":
            return statements.cancelled(worker_id, tasks, cast("list[Cancelled]", outcomes), emptied)
    delays_s = [outcome.delay_s if isinstance(outcome, Snoozed) else 0.0 for outcome in outcomes]
    return statements.release(worker_id, tasks, delays_s, emptied)
