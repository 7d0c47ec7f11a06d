"""The workers whose processes died under a supervisor, and the leases they left.

A lease protects a worker that may be alive. The supervisor has a dead child's exit status, so it
ends that child's leases and sweeps them at once (``leases_expire.sql`` tells why it may, and what
of the dead worker's last statements can be under way meanwhile). It looks several times, since
such a statement may still add or renew a lease: the last look comes when statement_timeout has
ended whatever the dead worker can have sent.

The looks happen in a thread that runs only for them, with a connection that is opened for them, so
that a database which does not answer keeps nobody from supervising. A look that fails is tried
again with backoff for as long as the supervisor lives. After that the leases expire by themselves.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from pgtasks import events
from pgtasks.engine.periodic import Backoff
from pgtasks.errors import DatabaseError, PgtasksError
from pgtasks.store import statements
from pgtasks.store.session import SyncConnection, connect, fetch_all, fetch_one, is_about_server

# When to look, in seconds after the first look that succeeded.
LOOKS_S = (0.0, 0.5, 2.0, 8.0, 20.0)
# A sweep has to know that its worker's own heartbeats get through, lest it takes a stalled
# worker for a dead one. There is no doubt about these.
_ALWAYS = datetime.max.replace(tzinfo=UTC)
_POLL_S = 0.01


@dataclass(slots=True)
class LostWorker:
    """One of them: how it died, the looks that were had, and when the next one is due (monotonic)."""

    worker_id: UUID
    dsn: str
    cause: str
    due_at: float
    looks: int = 0
    first_look_at: float = 0.0

    def looked(self, now: float) -> None:
        """Note a look that succeeded."""
        if not self.looks:
            self.first_look_at = now
        self.looks += 1
        if not self.is_settled:
            self.due_at = max(now, self.first_look_at + LOOKS_S[self.looks])

    @property
    def is_settled(self) -> bool:
        """Whether nothing more can come from it."""
        return self.looks >= len(LOOKS_S)


class LostWorkers:
    """All of them; ``wake`` is called, in another thread, when there is something to do for the owner."""

    def __init__(self, pooler: str, rng: random.Random, wake: Callable[[], None]) -> None:
        self._pooler, self._wake = pooler, wake
        self._lost: list[LostWorker] = []
        self._backoff = Backoff(rng)
        # While it is set the thread alone changes what is in the list.
        self._busy = False

    def add(self, worker_id: UUID, dsn: str, cause: str, now: float) -> None:
        """Note that the process of a worker is dead; ``cause`` goes into its tasks' records."""
        self._lost.append(LostWorker(worker_id, dsn, cause, now))

    def next_at(self) -> float | None:
        """Say when there is something to do, None when nothing is or a round is under way."""
        return None if self._busy or not self._lost else min(one.due_at for one in self._lost)

    def work(self, now: float) -> None:
        """Begin a round, if some look is due and none is under way; returns at once."""
        if self._busy:
            return
        self._lost = [one for one in self._lost if not one.is_settled]
        due = [one for one in self._lost if one.due_at <= now]
        if due:
            self._busy = True
            try:
                threading.Thread(target=self._round, args=(due,), name="pgtasks-lost-workers", daemon=True).start()
            except RuntimeError as error:
                # The system has no room for a thread now. Whoever supervises must not end because of that.
                self._busy = False
                self._put_off(due, error)

    def finish(self, until: Callable[[], float]) -> None:
        """Have a first look for each, for a bounded time: the owner ends.

        ``until`` gives the moment when that is over (monotonic); it is asked again and again.
        """
        while (left := [one for one in self._lost if not one.looks]) and time.monotonic() < until():
            self.work(time.monotonic())
            time.sleep(_POLL_S)
        for one in left:
            events.warning(
                "leases not given back", worker=one.worker_id, advice="they expire; other workers take the tasks then"
            )

    def _round(self, due: list[LostWorker]) -> None:
        try:
            while due:
                self._look(due[0])
                del due[0]
            self._backoff.reset()
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor goes on and it is tried again
            # Behind the others, whom it must not keep from their look.
            self._lost.remove(due[0])
            self._lost.append(due[0])
            self._put_off(due, error)
        finally:
            self._busy = False
            self._wake()

    def _look(self, one: LostWorker) -> None:
        with closing(connect(one.dsn, "finish", worker=one.worker_id.hex[:12], pooler=self._pooler)) as connection:
            leases, tasks = give_back(connection, one.worker_id, one.cause)
        one.looked(time.monotonic())
        if leases or tasks:
            events.warning("leases given back", worker=one.worker_id, leases=leases, tasks=tasks)

    def _put_off(self, due: list[LostWorker], error: Exception) -> None:
        delay_s = self._backoff.next_s()
        for one in due:
            one.due_at = max(one.due_at, time.monotonic() + delay_s)
        failures = self._backoff.failures
        if failures & (failures - 1):
            return
        if isinstance(error, PgtasksError):
            events.warning(
                "leases cannot be given back yet",
                error=str(error).splitlines()[0],
                failures=failures,
                retry_in_s=round(delay_s, 2),
            )
        else:
            events.LOGGER.error("leases cannot be given back yet", exc_info=error)


def give_back(connection: SyncConnection, worker_id: UUID, cause: str) -> tuple[int, int]:
    """End and sweep a dead worker's leases, and take it off the list; gives how many leases and tasks it had.

    Raises DatabaseError when the database is away. A lease that cannot be swept, because of a
    row of it that cannot be changed, has expired, and is left to the workers' own sweeps.
    """
    leases = tasks = 0
    for lease_id in sorted(fetch_all(connection, statements.expire_leases(worker_id))):
        try:
            swept = fetch_one(connection, statements.sweep(_ALWAYS, limit=1, lease_id=lease_id, cause=cause))
        except DatabaseError as error:
            if is_about_server(error):
                raise
            events.warning("lease left to the sweep", lease=lease_id, error=str(error).splitlines()[0])
            continue
        if swept is not None:
            leases += swept.closed
            tasks += swept.requeued + swept.dead + swept.cancelled
    fetch_all(connection, statements.remove_worker(worker_id))
    return leases, tasks
