"""D-04: writers of many rows take them in one order, so none waits for another in a circle; D-07."""

import random
import threading
import time
from collections.abc import Callable

import pytest

from pgtasks.store.session import SyncConnection
from tests.database import Connection, rows, value
from tests.leases import steps
from tests.leases.steps import Handle

RUN_S = 10.0
TASKS = 150
Loop = Callable[[SyncConnection, random.Random], None]


def finish_some(connection: SyncConnection, rng: random.Random) -> None:
    """Claim a batch, beat, and end its tasks and some of others' in every way."""
    worker = steps.worker_id()
    tasks = steps.claim(connection, worker, rng.randint(1, 40))
    handles = [Handle.of(task) for task in tasks]
    if not handles:
        return
    if rng.random() < 0.3:
        steps.expire(connection, handles[0].lease_id)
    steps.beat(connection, worker, [handles[0].lease_id], handles)
    finish = rng.choice([steps.complete, steps.retry, steps.bury, steps.finish_cancelled, steps.release])
    finish(connection, worker, handles, [handles[0].lease_id])


def meddle(connection: SyncConnection, rng: random.Random) -> None:
    """Cancel, retry and replay what others work on, several at once, in the order of the ids."""
    found = rows(connection, "SELECT id FROM pgtasks.all_tasks WHERE status <> 'completed' ORDER BY random() LIMIT 20")
    verb = rng.choice(["cancel", "retry", "retry"])
    statement = f"SELECT pgtasks.{verb}(id) FROM unnest(%s::bigint[]) id ORDER BY id"
    rows(connection, statement, sorted(task_id for (task_id,) in found))


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
    """Completions, sweeps, heartbeats, cancellations, retries and replays of the same tasks, for seconds."""
    errors: list[BaseException] = []
    until = time.monotonic() + RUN_S / 2

    def work(loop: Loop, seed: int) -> None:
        rng = random.Random(seed)
        with steps.connect(dsn, planner=planner) as opened:
            while time.monotonic() < until:
                try:
                    loop(opened, rng)
                except Exception as error:  # noqa: BLE001 - an error in a thread is an error of the test
                    errors.append(error)
                    return

    loops: list[Loop] = [finish_some, finish_some, finish_some, meddle, meddle, sweep, refill]
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
