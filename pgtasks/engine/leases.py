"""The leases this worker holds, and until when it may trust them.

A lease is one claimed batch. Its id fences every write about its tasks. It is trusted until
``trusted_until`` on this process's monotonic clock: the moment the request that granted or
renewed it was *sent*, plus the lease. The database counts from a later moment, so this side
always gives up first.

Changed on the engine's loop only; the heartbeat's thread takes copies.
"""

from __future__ import annotations

from collections.abc import Iterable


class Lease:
    """One lease: how many of its tasks have no outcome in the database yet."""

    __slots__ = ("open_tasks", "trusted_until")

    def __init__(self, open_tasks: int, trusted_until: float) -> None:
        self.open_tasks = open_tasks
        self.trusted_until = trusted_until


class Leases:
    """All leases of this worker, by id."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        # Handlers are stopped this much before the lease ends, to be still when it does.
        self.margin_s = min(2.0, lease_s / 10)
        self._by_id: dict[int, Lease] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def ids(self) -> list[int]:
        """Give the ids; callable from any thread."""
        return list(self._by_id)

    def add(self, lease_id: int, tasks: int, sent_at: float) -> None:
        """Note a lease granted by a request that was sent at ``sent_at`` (monotonic)."""
        self._by_id[lease_id] = Lease(tasks, sent_at + self.lease_s)

    def renewed(self, asked: Iterable[int], kept: Iterable[int], sent_at: float) -> set[int]:
        """Note the answer of a heartbeat; gives the leases that are gone although asked for."""
        until = sent_at + self.lease_s
        still = set(kept)
        for lease_id in still:
            lease = self._by_id.get(lease_id)
            if lease is not None:
                lease.trusted_until = max(lease.trusted_until, until)
        return {lease_id for lease_id in asked if lease_id not in still and lease_id in self._by_id}

    def expired(self, now: float) -> set[int]:
        """Give the leases that can no longer be trusted."""
        limit = now + self.margin_s
        return {lease_id for lease_id, lease in self._by_id.items() if lease.trusted_until <= limit}

    def emptied_by(self, lease_ids: Iterable[int]) -> list[int]:
        """Give the leases whose last open tasks these are (one id per task)."""
        counts: dict[int, int] = {}
        for lease_id in lease_ids:
            counts[lease_id] = counts.get(lease_id, 0) + 1
        return sorted(
            lease_id
            for lease_id, count in counts.items()
            if (lease := self._by_id.get(lease_id)) is not None and lease.open_tasks <= count
        )

    def close_tasks(self, lease_ids: Iterable[int]) -> None:
        """Note that tasks (one lease id each) have an outcome; an emptied lease is forgotten."""
        for lease_id in lease_ids:
            lease = self._by_id.get(lease_id)
            if lease is not None:
                lease.open_tasks -= 1
                if lease.open_tasks <= 0:
                    del self._by_id[lease_id]
