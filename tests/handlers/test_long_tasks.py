"""L-04: a healthy long task runs once, whatever it does to its loop, and its lease is renewed in time."""

import threading
import time
from itertools import pairwise

import psycopg
import pytest

from tests.database import rows, value, wait_until
from tests.handlers.conftest import Tasks

LEASE_S = 3.0


class Renewals:
    """Samples the leases' ends until they are gone, from a session and thread of its own."""

    def __init__(self, dsn: str) -> None:
        self._dsn, self._stop = dsn, threading.Event()
        self.seen: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stop.wait(0.1):
                statement = "SELECT extract(epoch FROM min(expires_at))::float FROM pgtasks.leases HAVING count(*) > 0"
                for (end,) in rows(connection, statement):
                    self.seen.append((time.monotonic(), end))

    def longest_gap_s(self) -> float:
        """The longest time between two renewals."""
        self._stop.set()
        self._thread.join()
        ends = sorted({end for _, end in self.seen})
        return max((later - earlier for earlier, later in pairwise(ends)), default=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "seconds"),
    [(["blocks"], 7.0), (["spins"], 5.0), (["holds"] * 50 + ["holds_sync"] * 10, 7.0)],
    ids=["blocks", "spins", "waits"],
)
def test_a_long_task_runs_once_and_its_lease_is_renewed(tasks: Tasks, names: list[str], seconds: float) -> None:
    """L-04: one run each, with a second worker ready to take over, and no gap above half the lease."""
    flags = ("--lease", str(LEASE_S), "--sweep-interval", "0.2")
    with tasks.worker(*flags) as worker:
        worker.wait_ready()
        added = [tasks.add(name, {"seconds": seconds}) for name in names]
        wait_until(lambda: all(tasks.status(task_id) == "running" for task_id in added))
        renewals = Renewals(tasks.dsn)
        with tasks.worker(*flags) as other:
            wait_until(lambda: not tasks.left(), 15)
            assert "swept" not in other.output()
        gap_s = renewals.longest_gap_s()
        assert 0 < gap_s <= LEASE_S / 2
        if names[0] in {"blocks", "spins"}:
            assert f"handlers' loop is blocked task_id={added[0]} task={names[0]}" in worker.output()
            assert worker.output().count("loop is blocked") == 1
        else:
            assert "loop is blocked" not in worker.output()
    found = rows(tasks.connection, "SELECT count(*), min(attempt), max(attempt) FROM pgtasks.history")
    assert found == [(len(names), 1, 1)]
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.attempts") == 0
