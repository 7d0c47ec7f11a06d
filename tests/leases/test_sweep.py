"""L-01, L-03: the sweep takes what is expired and still held, and nothing else."""

import threading
import uuid
from collections.abc import Callable
from uuid import UUID

import pytest

from pgtasks.store.statements import Moved
from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.steps import Handle


def test_a_completion_before_the_sweep_wins(dsn: str, connection: Connection) -> None:
    """The completion is under way, not committed: the sweep leaves the task and its lease alone."""
    (task_id,) = steps.enqueue(connection)
    a = steps.worker_id()
    (task,) = steps.claim(connection, a)
    steps.expire(connection)
    with steps.connect(dsn) as finishing, finishing.transaction():
        assert steps.complete(finishing, a, [Handle.of(task)]).ids is None
        swept = steps.sweep(connection)
        assert (swept.leases, swept.closed, swept.requeued + swept.dead) == (1, 0, 0)
    assert steps.sweep(connection).closed == 1
    assert steps.status(connection, task_id) == "completed"
    assert steps.outcomes(connection, task_id) == []


@pytest.mark.parametrize("end", [steps.complete, steps.retry, steps.bury, steps.finish_cancelled, steps.release])
def test_a_sweep_before_the_end_wins(dsn: str, connection: Connection, end: Callable[..., Moved]) -> None:
    """The sweep is under way: the outcome waits for it and is refused."""
    (task_id,) = steps.enqueue(connection)
    a = steps.worker_id()
    (task,) = steps.claim(connection, a)
    steps.expire(connection)
    moved: list[list[int] | None] = []
    with steps.connect(dsn) as sweeping, steps.connect(dsn) as finishing:
        late = threading.Thread(target=lambda: moved.append(end(finishing, a, [Handle.of(task)], [task.lease_id]).ids))
        with sweeping.transaction():
            assert steps.sweep(sweeping).requeued == 1
            late.start()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            wait_until(lambda: value(connection, waiting))
        late.join()
    assert moved == [[]]
    assert steps.status(connection, task_id) == "retrying"
    assert steps.outcomes(connection, task_id) == ["worker_lost"]


def race(dsn: str, worker: UUID, handles: list[Handle]) -> set[int]:
    """Complete tasks one by one in four threads while two others sweep; return the ids that were accepted.

    All begin together, the sweeps and half of the completions with the first lease, the others with the last.
    """
    taken: list[int] = []
    done = threading.Event()
    start = threading.Barrier(6, timeout=10)

    def finish(part: list[Handle]) -> None:
        with steps.connect(dsn) as opened:
            start.wait()
            taken.extend(one.id for one in part if steps.complete(opened, worker, [one]).ids is None)

    def sweep() -> None:
        with steps.connect(dsn) as opened:
            start.wait()
            while not done.is_set():
                steps.sweep(opened, limit=3)

    parts = [handles[0::4], handles[1::4], handles[2::4][::-1], handles[3::4][::-1]]
    finishers = [threading.Thread(target=finish, args=(part,)) for part in parts]
    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in (*sweepers, *finishers):
        thread.start()
    for thread in finishers:
        thread.join()
    done.set()
    for thread in sweepers:
        thread.join()
    return set(taken)


@pytest.mark.timeout(40)
def test_sweeps_and_completions_at_once_never_both_take_a_task(dsn: str, connection: Connection) -> None:
    """400 expired tasks, their completions and sweeps racing: each ends once, with one outcome."""
    count, a = 400, steps.worker_id()
    steps.enqueue(connection, count, max_attempts=5)
    handles = [Handle.of(task) for _ in range(count // 2) for task in steps.claim(connection, a, 2)]
    steps.expire(connection)
    taken = race(dsn, a, handles)
    while steps.sweep(connection).leases:
        pass
    completed = {one for (one,) in rows(connection, "SELECT id FROM pgtasks.history WHERE status = 'completed'")}
    swept = {one for (one,) in rows(connection, "SELECT task_id FROM pgtasks.attempts WHERE outcome = 'worker_lost'")}
    assert completed == taken
    assert completed.isdisjoint(swept)
    assert len(completed) + len(swept) == count
    assert completed, "the sweeps were always first: no race took place"
    assert swept, "the completions were always first: no race took place"
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'queued' AND attempt = 1") == len(swept)


CHANGES: dict[str, Callable[[Connection], object]] = {
    "no worker row": lambda c: rows(c, "DELETE FROM pgtasks.workers"),
    "a worker that never was": lambda c: rows(c, "UPDATE pgtasks.leases SET worker_id = %s", uuid.uuid4()),
    "no task type": lambda c: rows(c, "DELETE FROM pgtasks.task_types"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_lease_alone_leads_the_sweep_to_its_tasks(change: str, connection: Connection) -> None:
    """L-03: the registration of a worker plays no part in the recovery of its tasks."""
    steps.enqueue(connection, 2)
    steps.claim(connection, steps.worker_id(), 2)
    CHANGES[change](connection)
    steps.expire(connection)
    assert steps.sweep(connection).requeued == 2


def test_a_sweep_that_was_late_takes_nothing(connection: Connection) -> None:
    """Its sender's heartbeat does not count as fresh any more: the database may have stalled meanwhile."""
    steps.enqueue(connection)
    steps.claim(connection, steps.worker_id())
    steps.expire(connection)
    assert steps.sweep(connection, fresh_s=-0.001).leases == 0
    assert steps.sweep(connection).leases == 1


def test_a_full_batch_says_that_there_may_be_more(connection: Connection) -> None:
    """`closed` counts leases that were deleted, so that empty ones do not end the work early."""
    steps.enqueue(connection, 5)
    a = steps.worker_id()
    tasks = [task for _ in range(5) for task in steps.claim(connection, a)]
    steps.complete(connection, a, [Handle.of(task) for task in tasks[:3]])
    steps.expire(connection)
    swept = steps.sweep(connection, limit=3)
    assert (swept.leases, swept.closed, swept.requeued) == (3, 3, 0)
    assert steps.sweep(connection, limit=3).requeued == 2
