"""The leases this worker holds, and until when it may trust them.

A lease is one claimed batch. Its id fences every write about its tasks. It is trusted until
``trusted_until`` on this process's monotonic clock: the moment the request that granted or
renewed it was *sent*, plus the lease. The database counts from a later moment, so this side
always gives up first.

A lease that can no longer be trusted is in one of two states (docs/adr/0005-stalls-and-fencing.md):

- *in doubt*: the heartbeat has been asking in time and the database does not answer, or its
  answer (to a heartbeat or a claim) took so long that it says nothing about now, or it says
  that somebody has locked the lease's row, so that it could not be renewed. The lease
  may well be ours still, if the database stalled for everybody. The tasks stay on the books:
  their outcomes are offered, under the lease, when the database is back.
- *let go*: this process itself did not run in time. The lease is renewed no more; it was swept
  or will be, which charges an attempt. Its row is never deleted by us, because it is what
  leads the sweep to the tasks that still belong to it.

Changed on the engine's loop only, but for ``asked``, which the heartbeat's thread calls; it
also takes copies of the ids.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple


class Lease:
    """One lease: how many of its tasks have no outcome in the database yet."""

    __slots__ = ("excused", "left_to_sweep", "let_go", "open_tasks", "trusted_until")

    def __init__(self, open_tasks: int, trusted_until: float, *, excused: bool) -> None:
        self.open_tasks = open_tasks
        self.trusted_until = trusted_until
        # That it is not trusted is no fault of this process: the answer that granted or renewed
        # it last arrived after its trusted time, or its row was locked.
        self.excused = excused
        # Some of its tasks are left as they are: the row must stay until the sweep has seen it.
        self.left_to_sweep = False
        self.let_go = False


class Untrusted(NamedTuple):
    """The leases whose trusted time is over, by what is to be done about their tasks."""

    in_doubt: set[int]
    let_go: set[int]


class Leases:
    """All leases of this worker, by id."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        # Handlers are stopped this much before the lease ends, to be still when it does. At
        # least a few rounds of the watchdog; small enough to leave time for a second beat.
        self.margin_s = min(2.0, max(0.3, lease_s / 10))
        self._by_id: dict[int, Lease] = {}
        self._asking_since: float | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def ids(self) -> list[int]:
        """Give the ids of the leases to renew; callable from any thread."""
        return [lease_id for lease_id, lease in list(self._by_id.items()) if not lease.let_go]

    def add(self, lease_id: int, tasks: int, sent_at: float) -> None:
        """Note a lease granted by a request that was sent at ``sent_at`` (monotonic)."""
        self._by_id[lease_id] = Lease(tasks, sent_at + self.lease_s, excused=self._is_late(sent_at))

    def _is_late(self, sent_at: float) -> bool:
        return sent_at + self.lease_s <= time.monotonic() + self.margin_s

    def asked(self, sent_at: float) -> None:
        """Note that a heartbeat was sent; callable from any thread."""
        if self._asking_since is None:
            self._asking_since = sent_at

    def unanswered(self) -> bool:
        """Tell whether heartbeats go unanswered for half a lease: what is claimed now could not be kept."""
        since = self._asking_since
        return since is not None and time.monotonic() - since > self.lease_s / 2

    def renewed(
        self, asked: Iterable[int], kept: Iterable[int], sent_at: float, *, locked: Iterable[int] = ()
    ) -> set[int]:
        """Note the answer of a heartbeat; gives the leases that are gone although asked for.

        What is ``locked`` is not renewed and not gone either.
        """
        self._asking_since = None
        until, late = sent_at + self.lease_s, self._is_late(sent_at)
        still = set(kept)
        for lease_id in still:
            lease = self._by_id.get(lease_id)
            if lease is not None and not lease.let_go:
                lease.trusted_until = max(lease.trusted_until, until)
                lease.excused = late
        for lease_id in locked:
            still.add(lease_id)
            lease = self._by_id.get(lease_id)
            if lease is not None:
                lease.excused = True
        return {lease_id for lease_id in asked if lease_id not in still and lease_id in self._by_id}

    def untrusted(self, now: float) -> Untrusted:
        """Give the leases that can no longer be trusted; those to let go are so from now on."""
        limit = now + self.margin_s
        asking_since = self._asking_since
        found = Untrusted(set(), set())
        for lease_id, lease in self._by_id.items():
            if lease.trusted_until > limit:
                continue
            asked_in_time = asking_since is not None and asking_since < lease.trusted_until - self.margin_s
            if (asked_in_time or lease.excused) and not lease.let_go:
                found.in_doubt.add(lease_id)
            else:
                lease.let_go = lease.left_to_sweep = True
                found.let_go.add(lease_id)
        return found

    def emptied_by(self, lease_ids: Iterable[int]) -> list[int]:
        """Give the leases whose last open tasks these are (one id per task) and that may be deleted."""
        counts: dict[int, int] = {}
        for lease_id in lease_ids:
            counts[lease_id] = counts.get(lease_id, 0) + 1
        return sorted(
            lease_id
            for lease_id, count in counts.items()
            if (lease := self._by_id.get(lease_id)) is not None
            and lease.open_tasks <= count
            and not lease.left_to_sweep
        )

    def close_tasks(self, lease_ids: Iterable[int]) -> None:
        """Note that tasks (one lease id each) have an outcome; an emptied lease is forgotten."""
        for lease_id in lease_ids:
            lease = self._by_id.get(lease_id)
            if lease is not None:
                lease.open_tasks -= 1
                if lease.open_tasks <= 0:
                    del self._by_id[lease_id]

    def leave_to_sweep(self, lease_id: int) -> None:
        """Note that a task of this lease has no outcome and never will: the sweep must find it."""
        lease = self._by_id.get(lease_id)
        if lease is not None:
            lease.left_to_sweep = True
            self.close_tasks([lease_id])
