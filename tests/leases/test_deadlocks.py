"""D-04: writers of many rows take them in one order, so none waits for another in a circle; D-07."""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pgtasks.store import cancelling, dead_letters
from pgtasks.store.session import Statement, SyncConnection, fetch_all
from tests.access import as_role
from tests.database import Connection, rows, value
from tests.leases import steps
from tests.leases.steps import Handle

RUN_S = 10.0
TASKS = 150
WORKER = steps.worker_id()
HELD: set[int] = set()  # The leases of the worker, whose batches and heartbeats come on several connections.
Loop = Callable[[SyncConnection, random.Random], None]


def finish_some(connection: SyncConnection, rng: random.Random) -> None:
    """Claim some small batches, let some expire, and end all their tasks at once in one of the ways."""
    tasks = [task for _ in range(4) for task in steps.claim(connection, WORKER, rng.randint(1, 10))]
    handles = [Handle.of(task) for task in tasks]
    leases = list({handle.lease_id for handle in handles})
    if not leases:
        return
    HELD.update(leases)
    if rng.random() < 0.3:
        steps.expire(connection, leases[0])
    finish = rng.choice([steps.complete, steps.retry, steps.bury, steps.finish_cancelled, steps.release])
    finish(connection, WORKER, handles, rng.sample(leases, len(leases)))
    HELD.difference_update(leases)


def beat(connection: SyncConnection, rng: random.Random) -> None:
    """Renew what the same worker is about to give up."""
    leases = list(HELD.copy())
    steps.beat(connection, WORKER, rng.sample(leases, len(leases)))


def meddle(connection: SyncConnection, rng: random.Random) -> None:
    """Cancel, retry and replay what others work on, several at once, in the order of the ids."""
    found = rows(connection, "SELECT id FROM pgtasks.all_tasks WHERE status <> 'completed' ORDER BY random() LIMIT 20")
    verb = rng.choice(["cancel", "retry", "retry"])
    statement = f"SELECT pgtasks.{verb}(id) FROM unnest(%s::bigint[]) id ORDER BY id"
    rows(connection, statement, sorted(task_id for (task_id,) in found))


def in_bulk(connection: SyncConnection, rng: random.Random) -> None:
    """Cancel, replay and purge many at once, as the commands do."""
    bulk: list[Statement[Any]] = [
        cancelling.cancel(cancelling.Filters(status="running"), after=0, until=2**62, limit=20),
        cancelling.cancel(cancelling.Filters(), after=0, until=2**62, limit=20),
        dead_letters.replay(dead_letters.Filters(), after=0, limit=50),
        dead_letters.purge(dead_letters.Filters(), after=0, limit=5),
    ]
    fetch_all(connection, rng.choice(bulk))


def sweep(connection: SyncConnection, rng: random.Random) -> None:
    """Sweep, after some leases have expired."""
    rows(connection, "UPDATE pgtasks.leases SET expires_at = clock_timestamp() WHERE id % 3 = 0 AND random() < 0.1")
    steps.sweep(connection, limit=rng.randint(1, 50))


def refill(connection: SyncConnection, rng: random.Random) -> None:
    """Keep the queue full of tasks."""
    waiting = value(connection, "SELECT count(*) FROM pgtasks.tasks")
    if waiting < TASKS:
        steps.enqueue(connection, TASKS - waiting, max_attempts=rng.randint(1, 4))
    time.sleep(0.01)  # a producer that is not in a hurry


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("planner", [True, False], ids=["as a worker", "as behind a pooler"])
def test_nobody_deadlocks(planner: bool, dsn: str, connection: Connection) -> None:  # noqa: FBT001 - a parameter of pytest
    """Completions, sweeps, heartbeats, cancellations, retries, replays and purges of the same tasks, for seconds."""
    errors: list[BaseException] = []
    until = time.monotonic() + RUN_S / 2

    def work(loop: Loop, seed: int) -> None:
        rng = random.Random(seed)
        address = as_role(dsn, "admin" if loop in {meddle, in_bulk} else "worker")
        with steps.connect(address, planner=planner) as opened:
            while time.monotonic() < until:
                try:
                    loop(opened, rng)
                except Exception as error:  # noqa: BLE001 - an error in a thread is an error of the test
                    errors.append(error)
                    return

    loops: list[Loop] = [
        finish_some,
        finish_some,
        finish_some,
        beat,
        beat,
        meddle,
        meddle,
        in_bulk,
        in_bulk,
        sweep,
        refill,
    ]
    threads = [threading.Thread(target=work, args=(loop, seed)) for seed, loop in enumerate(loops)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    rows(connection, "SELECT pg_stat_force_next_flush()")
    assert value(connection, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    assert value(connection, "SELECT count(*) FROM pgtasks.history") > 0
    assert value(connection, "SELECT min(id) FROM pgtasks.history") > 2**31
