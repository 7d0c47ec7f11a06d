"""The floor: how fast the same SQL goes with nothing around it.

One connection, one loop, no handlers, no timeouts, no heartbeats: claim 500 tasks, complete
them, again. The statements, the table, the indexes, the history and the connection's settings are
those of a worker, so the difference between the two is the worker's own work, and what it gains by
overlapping the two statements on two connections.

`python -m bench.floor` is the same as a process of its own, for several at once: it is known as a
worker is, and goes on until it is told to stop.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

from bench import cpu
from bench.database import Bench
from pgtasks.model import Claimed, WorkerInfo
from pgtasks.outcome import Completed, Failure, RetryIn
from pgtasks.retry import DELAY_S_MIN
from pgtasks.settings import QUEUE_DEFAULT
from pgtasks.store import session, statements

BATCH = 500
LEASE_S = 30.0
# Tasks of this name fail the first time; the others are those of any scenario that has a floor.
FAILS = "flaky"
NAMES = ["noop", "steady", FAILS]
WAIT_S = 0.005
DRAIN_S = 600.0
# As many characters as the traceback of a short handler has.
_FAILURE = Failure("bench.apps.mixed.AwayError", "it is away", "Traceback (most recent call last):\n".ljust(180, "."))


class FloorRun(NamedTuple):
    """What the loop did and used: tasks per second by history, CPU microseconds per task of both sides."""

    rate: float
    cpu_us_per_task: float | None


class Loop:
    """Claims and completes over one connection, with a cursor as a worker has one."""

    def __init__(self, connection: session.SyncConnection) -> None:
        self._connection = connection
        self.worker_id = uuid.uuid4()
        self._lane = statements.Lane(0, datetime(1970, 1, 1, tzinfo=UTC), 0)

    def step(self) -> int:
        """Claim a batch and write how it ended; gives how many are done."""
        claim = statements.claim(
            QUEUE_DEFAULT, [self._lane], limit=BATCH, names=NAMES, worker_id=self.worker_id, lease_s=LEASE_S
        )
        rows = session.fetch_all(self._connection, claim)
        if not rows:
            return 0
        self._lane = statements.Lane(0, *max((row.run_at, row.id) for row in rows))
        rows.sort(key=_key)
        failed = [row for row in rows if row.name == FAILS and row.attempt == 1]
        done = [row for row in rows if row.name != FAILS or row.attempt > 1] if failed else rows
        lease_id = rows[0].lease_id
        if failed:
            outcomes = [RetryIn(DELAY_S_MIN, _FAILURE)] * len(failed)
            emptied = [] if done else [lease_id]
            self._write(statements.retry(self.worker_id, list(map(_key, failed)), outcomes, emptied))
        if done:
            completed = [Completed()] * len(done)
            self._write(statements.complete(self.worker_id, list(map(_key, done)), completed, [lease_id]))
        return len(done)

    def _write(self, statement: session.Statement[statements.Moved]) -> None:
        moved = session.fetch_all(self._connection, statement)
        assert moved[0].ids is None, "a task was lost: the run is not valid"


def run(bench: Bench, tasks: int) -> FloorRun:
    """Drain the queue, which holds this many tasks, until the last of them is done."""
    started_s = time.thread_time()
    with session.connect(bench.dsn, "claim", worker="floor") as connection:
        loop, done, deadline = Loop(connection), 0, time.monotonic() + DRAIN_S
        while done < tasks:
            assert time.monotonic() < deadline, f"{done} of {tasks} tasks were done in {DRAIN_S:g} s"
            more = loop.step()
            done += more
            # Only what failed is left, and due in a moment.
            if not more:
                time.sleep(WAIT_S)
        server_s = cpu.cpu_s_of(connection.info.backend_pid)
    client_s = time.thread_time() - started_s
    return FloorRun(
        rate=tasks / bench.span(tasks).seconds,
        cpu_us_per_task=None if server_s is None else (client_s + server_s) / tasks * 1e6,
    )


def main() -> None:
    """Take part in emptying a queue, of the database that a worker would find, until a SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with session.connect(os.environ["PGTASKS_DSN"], "claim", worker="floor") as connection:
        loop = Loop(connection)
        info = WorkerInfo(loop.worker_id, "floor", (QUEUE_DEFAULT,), tuple(NAMES), BATCH, LEASE_S, "-", (None,))
        session.fetch_all(connection, statements.register(info))
        while True:
            if not loop.step():
                time.sleep(WAIT_S)


def _key(row: Claimed) -> tuple[int, int]:
    return row.id, row.lease_id


if __name__ == "__main__":
    main()
