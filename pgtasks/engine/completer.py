"""From outcomes to the database: batched, fenced, offered until accepted or refused.

Outcomes are collected and written by size or time, whichever comes first, on a connection of
their own, so that writing overlaps the next claim. While one batch is being written the next
one grows, which sizes batches by itself when the database is slow.

A batch whose reply is lost is offered again as it is. That is safe: every row is written only
under its lease, and a task that does not come back is looked up by (id, lease). Found in
history, attempts or dead letters, it was our own earlier write and counts as done; found
nowhere, its lease was lost and the result is dropped, which is said once.

One row does not hold up the others.

- A batch that PostgreSQL refuses for a row is halved until that row stands alone. If it was
  refused for its values, its outcome goes in without them, and says so ("result not stored").
- A batch that ran into a lock (an open transaction of somebody who cancelled, changed or refers
  to a running task) is written without the locked rows, which are offered again every second.
- A batch that fails twice for another reason that may lie in a row (a time limit, a damaged
  page, memory) is put aside and halved there, one try after each round of the others.
- A row that stands alone and still fails cannot be moved: a foreign key without ON DELETE, a
  trigger that raises. The work is done, so it must not be done again because of that: the
  outcome stays aside and is offered again with growing delays, up to a minute, for as long as
  this worker lives and keeps the lease. If the worker ends first, the lease expires, and the
  sweep treats the task as that of a lost worker.

An error of the server, the role or the schema concerns all rows alike: the batch is kept and
offered again as it is.
"""

from __future__ import annotations

import time
from uuid import UUID

from pgtasks import events
from pgtasks.engine.leases import Leases
from pgtasks.engine.outgoing import BYTES_MAX, DROPPED, ROWS_MAX, Batch, batches_of, plainer, recognise
from pgtasks.engine.periodic import Signal, wait_for_any
from pgtasks.engine.runners import Finished
from pgtasks.errors import DatabaseError, LeaseLost
from pgtasks.store import statements
from pgtasks.store.link import Link
from pgtasks.store.session import is_about_data, is_about_server, is_about_time, is_about_values

LINGER_S = 0.01
IDLE_S = 60.0
BLOCKED_S = 1.0
# Between tries of what is aside, after one that failed; and until a single row is tried again.
ASIDE_S = 0.25
AGAIN_S_MIN, AGAIN_S_MAX = 1.0, 60.0
SUSPECT_FAILURES = 2


class Completer:
    """Writes outcomes; one batch at a time."""

    def __init__(
        self, link: Link, worker_id: UUID, leases: Leases, batch_enough: int, *, bytes_max: int = BYTES_MAX
    ) -> None:
        self._link, self._worker_id, self._leases = link, worker_id, leases
        self._batch_enough = max(1, min(batch_enough, ROWS_MAX))
        self._bytes_max = bytes_max
        self._waiting: Finished = []
        self._writing: list[Batch] = []
        self._blocked: list[Batch] = []
        self._blocked_until = 0.0
        self._aside: list[Batch] = []
        self._aside_until = 0.0
        self.arrived = Signal()
        self._enough = Signal()
        self.hurry = False
        self.lost = 0
        self.written = 0

    @property
    def backlog(self) -> int:
        """How many outcomes are not in the database yet."""
        return len(self._waiting) + sum(len(batch) for batch in (*self._writing, *self._blocked, *self._aside))

    @property
    def refused(self) -> int:
        """How many of these stand alone and cannot be written until somebody removes what refuses them."""
        return sum(batch.refusals > 0 for batch in self._aside)

    def add(self, finished: Finished) -> None:
        """Take outcomes on the engine's loop."""
        self._waiting.extend(finished)
        self.arrived.set()
        if len(self._waiting) >= self._batch_enough:
            self._enough.set()

    async def flush(self) -> float:
        """Do one round: collect for a moment, write all there is, then try one batch that failed before."""
        if self._blocked and time.monotonic() >= self._blocked_until:
            await self._unblock()
        if not self._writing and self._waiting:
            if len(self._waiting) < self._batch_enough and not self.hurry:
                await wait_for_any(LINGER_S, self._enough)
            self._enough.clear()
            self._writing = self._take()
        await self._write_all()
        if self._aside_due_s() <= 0:
            self._writing.append(self._aside.pop(self._next_aside()))
            await self._write_all()
        return 0.0 if self._waiting else self._rest_s()

    def _rest_s(self) -> float:
        blocked_s = max(0.001, self._blocked_until - time.monotonic()) if self._blocked else IDLE_S
        return min(blocked_s, max(0.0, self._aside_due_s()))

    def _next_aside(self) -> int:
        return min(range(len(self._aside)), key=lambda position: self._aside[position].due)

    def _aside_due_s(self) -> float:
        """Say in how many seconds to try the next batch that is aside."""
        if not self._aside:
            return IDLE_S
        due = 0.0 if self.hurry else self._aside[self._next_aside()].due
        return max(due, self._aside_until) - time.monotonic()

    def _take(self) -> list[Batch]:
        """Cut what waits into batches."""
        try:
            batches = batches_of(self._waiting, self._bytes_max)
        except Exception:  # noqa: BLE001 - whatever is wrong with one outcome concerns its own task alone
            batches = batches_of(self._without_bad(), self._bytes_max)
        self._waiting = []
        for batch in batches:
            if batch.kind == DROPPED:
                self._leave_to_sweep(batch.part)
        return [batch for batch in batches if batch.kind != DROPPED]

    def _without_bad(self) -> Finished:
        """Give what waits without the outcomes that cannot be cut, whose tasks are left to the sweep."""
        good: Finished = []
        for item in self._waiting:
            try:
                batches_of([item], self._bytes_max)
            except Exception as error:  # noqa: BLE001 - it may be wrong in any way
                attempt = item[0]
                events.error(
                    "outcome not understood",
                    task_id=attempt.task.id,
                    task=attempt.task.name,
                    error=f"{type(error).__name__}: {error}",
                    advice="the task is left to the sweep; please report this",
                )
                self._leave_to_sweep([item])
            else:
                good.append(item)
        return good

    async def _write_all(self) -> None:
        while self._writing:
            await self._write(self._writing[0])

    async def _write(self, batch: Batch) -> None:
        """Write the first batch and account for it; raises DatabaseError to be called again."""
        try:
            moved = await self._run(batch)
        except DatabaseError as error:
            # Replaced in one go: until here an error leaves the whole batch to be offered again.
            self._writing[:1] = await self._instead(batch, error)
            return
        if moved is not None and len(moved) < len(batch):
            taken = set(moved)
            await self._account_missing(batch.kind, [item for item in batch.part if item[0].task.id not in taken])
        self._settle(batch.part)
        self._writing.pop(0)
        if batch.refusals:
            events.info("outcome accepted at last", task_id=batch.part[0][0].task.id)

    def _settle(self, part: Finished) -> None:
        """Take these attempts off their leases, each once however often it was offered."""
        lease_ids = []
        for attempt, _ in part:
            if not attempt.settled:
                attempt.settled = True
                lease_ids.append(attempt.task.lease_id)
        self.written += len(lease_ids)
        self._leases.close_tasks(lease_ids)

    def _leave_to_sweep(self, part: Finished) -> None:
        """Take these attempts off their leases without an outcome in the database."""
        for attempt, _ in part:
            if not attempt.settled:
                attempt.settled = True
                self._leases.leave_to_sweep(attempt.task.lease_id)

    async def _run(self, batch: Batch) -> list[int] | None:
        emptied = self._leases.emptied_by(attempt.task.lease_id for attempt, _ in batch.part if not attempt.settled)
        reply = await self._link.fetch_one(batch.statement(self._worker_id, emptied))
        return reply.ids if reply is not None else []

    async def _account_missing(self, kind: str, missing: Finished) -> None:
        """Tell our own earlier writes from lost leases; a task that is to be given back is no loss."""
        if kind == "release":
            events.debug("not given back, it had been already", count=len(missing))
            return
        ours = set(await self._link.fetch_all(recognise(kind, missing)))
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

    async def _instead(self, batch: Batch, error: DatabaseError) -> list[Batch]:
        """Say what to write now in the place of a batch that failed; raises the error to offer it as it is."""
        if is_about_server(error):
            raise error
        if is_about_time(error):
            free, locked = batch.sorted_out(await self._locked(batch))
            if locked:
                self._block(locked)
                return free
        if is_about_data(error) and len(batch) > 1:
            return batch.halves()
        if is_about_values(error):
            attempt, outcome = batch.part[0]
            plain = plainer(outcome, _first_line(error))
            if plain is not None:
                return [Batch(batch.kind, [(attempt, plain)])]
        batch.failures += 1
        if batch.failures < SUSPECT_FAILURES and not is_about_data(error):
            raise error
        self._put_aside(batch, error)
        return []

    def _put_aside(self, batch: Batch, error: DatabaseError) -> None:
        """Keep a suspect for later: its halves, or the one row."""
        now = time.monotonic()
        self._aside_until = now + ASIDE_S
        if len(batch) > 1:
            self._aside += batch.halves()
            return
        batch.refusals += 1
        batch.due = now + min(AGAIN_S_MAX, AGAIN_S_MIN * 2.0 ** min(batch.refusals - 1, 16))
        if batch.refusals == 1:
            attempt = batch.part[0][0]
            events.error(
                "outcome refused by the database",
                task_id=attempt.task.id,
                task=attempt.task.name,
                error=_first_line(error),
                advice="it is kept and offered again; look for a foreign key or a trigger on pgtasks.tasks",
            )
        self._aside.append(batch)

    def _block(self, locked: list[Batch]) -> None:
        """Keep rows that somebody has locked, to be offered again soon."""
        if not self._blocked:
            events.warning(
                "outcomes wait for a lock",
                tasks=[task_id for batch in locked for task_id, _ in batch.held_by()][:10],
                count=sum(map(len, locked)),
                advice="an open transaction elsewhere has locked rows of running tasks",
            )
        self._blocked += locked
        self._blocked_until = time.monotonic() + BLOCKED_S

    async def _unblock(self) -> None:
        """Offer what was locked and is free by now."""
        self._blocked_until = time.monotonic() + BLOCKED_S
        for batch in list(self._blocked):
            free, locked = batch.sorted_out(await self._locked(batch))
            self._blocked.remove(batch)
            self._blocked += locked
            self._writing += free

    async def _locked(self, batch: Batch) -> set[int]:
        """Ask which of these tasks somebody has locked."""
        return set(await self._link.fetch_all(statements.blocked(batch.held_by())))


def _first_line(error: DatabaseError) -> str:
    return str(error).splitlines()[0]
