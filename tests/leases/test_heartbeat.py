"""Heartbeats: leases renewed, a removed worker registered again, losses and cancellations learnt."""

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.leases.steps import Handle
from tests.proxy import Proxy
from tests.trace import Trace


def test_an_expired_lease_that_was_not_swept_lives_on(connection: Connection) -> None:
    """After a stall a live worker's lease is renewed, whatever the time says."""
    steps.enqueue(connection)
    a = steps.worker_id()
    (task,) = steps.claim(connection, a)
    steps.expire(connection)
    assert steps.beat(connection, a, [task.lease_id], [Handle.of(task)]).kept == [task.lease_id]
    assert steps.sweep(connection).leases == 0


def test_nobody_renews_the_lease_of_another(connection: Connection) -> None:
    """A lease id alone does not keep a lease alive."""
    steps.enqueue(connection)
    (task,) = steps.claim(connection, steps.worker_id())
    steps.expire(connection)
    assert steps.beat(connection, steps.worker_id(), [task.lease_id]).kept == []
    assert steps.sweep(connection).requeued == 1


def test_a_lease_swept_in_part_tells_which_tasks_are_lost(dsn: str, connection: Connection) -> None:
    """What somebody had locked stays with its lease; the others' handlers are told by the next heartbeat."""
    steps.enqueue(connection, 3)
    a = steps.worker_id()
    tasks = steps.claim(connection, a, 3)
    handles = [Handle.of(task) for task in tasks]
    steps.expire(connection)
    with steps.connect(dsn) as other, other.transaction():
        rows(other, "SELECT 1 FROM pgtasks.tasks WHERE id = %s FOR UPDATE", tasks[1].id)
        swept = steps.sweep(connection)
    assert (swept.leases, swept.closed, swept.requeued) == (1, 0, 2)
    answer = steps.beat(connection, a, [tasks[0].lease_id], handles)
    assert answer.kept == [tasks[0].lease_id]
    assert sorted(answer.lost) == [1, 3]
    assert steps.complete(connection, a, handles).ids == [tasks[1].id]


def test_a_locked_row_costs_no_other_lease(dsn: str, connection: Connection) -> None:
    """Open transactions on one lease and on the worker's own row: all others are renewed, at once."""
    steps.enqueue(connection, 3)
    a = steps.worker_id()
    rows(
        connection,
        "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)"
        " VALUES (%s, 'a', '{default}', '{}', 1, 30, '0')",
        a,
    )
    leases = [steps.claim(connection, a)[0].lease_id for _ in range(3)]
    steps.expire(connection)
    with steps.connect(dsn) as other, other.transaction():
        rows(other, "SELECT 1 FROM pgtasks.leases WHERE id = %s FOR UPDATE", leases[1])
        rows(other, "SELECT 1 FROM pgtasks.workers FOR UPDATE")
        rows(connection, "SET lock_timeout = '1s'")
        answer = steps.beat(connection, a, [*leases, 1])
        rows(connection, "RESET lock_timeout")
    assert (sorted(answer.kept), answer.locked) == ([leases[0], leases[2]], [leases[1]])
    assert answer.registered, "it is there, although its row could not be changed"
    answer = steps.beat(connection, a, leases)
    assert (sorted(answer.kept), answer.locked) == (leases, [])


@pytest.mark.timeout(40)
def test_a_handler_whose_task_was_taken_from_its_lease_is_stopped(
    connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """Somebody's hand put the task back into the queue: the old run ends, the new one counts."""
    worker = start_worker().wait_ready()
    task_id = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 3}')""")
    wait_until(lambda: trace.marks("tick"))
    rows(
        connection,
        "UPDATE pgtasks.tasks SET state = 'queued', lease_id = NULL, claimed_at = NULL, run_at = clock_timestamp()"
        " WHERE id = %s",
        task_id,
    )
    worker.wait_output("lease lost")
    wait_until(lambda: trace.marks("cancelled", task_id=task_id))
    wait_until(lambda: steps.status(connection, task_id) == "completed")
    assert [mark.attempt for mark in trace.marks("end")] == [2]


@pytest.mark.timeout(40)
def test_a_removed_worker_comes_back(connection: Connection, start_worker: StartWorker) -> None:
    """Whoever deletes the row of a live worker sees it again within a heartbeat, with all it can do."""
    start_worker().wait_ready()
    ((before, names),) = rows(connection, "DELETE FROM pgtasks.workers RETURNING id, names")
    wait_until(lambda: rows(connection, "SELECT 1 FROM pgtasks.workers"), 5)
    assert rows(connection, "SELECT id, names FROM pgtasks.workers") == [(before, names)]


@pytest.mark.timeout(40)
def test_a_running_task_is_cancelled_without_notifications(
    dsn: str, connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """The listener is cut off for good: the next heartbeat brings the request."""
    with Proxy(dsn) as proxy:
        proxy.black_hole("listen")
        start_worker(address=proxy.dsn).wait_ready()
        task_id = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 30}')""")
        wait_until(lambda: trace.marks("tick"))
        assert value(connection, "SELECT pgtasks.cancel(%s)", task_id) == "requested"
        wait_until(lambda: steps.status(connection, task_id) == "cancelled")
    assert trace.marks("cancelled")


@pytest.mark.slow
@pytest.mark.timeout(40)
def test_a_dead_connection_alone_costs_no_lease(
    dsn: str, connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """Nothing passes on the heartbeat's connection any more: it is given up in time and made anew."""
    with Proxy(dsn) as proxy:
        worker = start_worker(address=proxy.dsn, lease_s=3.0).wait_ready()
        task_id = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 5}')""")
        wait_until(lambda: trace.marks("tick"))
        start_worker(lease_s=3.0)
        proxy.swallow("heartbeat")
        wait_until(lambda: steps.status(connection, task_id) == "completed", 15)
    assert len(trace.marks("start")) == 1
    assert "no answer within 1 s" in worker.output()
    assert "lease" not in worker.output().replace("lease_s", "")
