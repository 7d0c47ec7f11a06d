"""The heartbeat's thread keeps the leases of an engine that works, and of no other."""

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest

from pgtasks import App
from pgtasks.engine import heartbeat
from pgtasks.engine.executor import Executor
from pgtasks.engine.heartbeat import Heartbeat
from pgtasks.engine.leases import Leases
from pgtasks.engine.slots import Slots
from pgtasks.model import WorkerInfo
from pgtasks.settings import QueueSlots
from pgtasks.store.link import Link
from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.trace import Trace

LEASE_S = 1.0


@pytest.fixture
async def beating(dsn: str, connection: Connection) -> AsyncIterator[Heartbeat]:
    """A heartbeat that keeps the lease of one task, which nobody runs."""
    steps.enqueue(connection)
    worker = steps.worker_id()
    (task,) = steps.claim(connection, worker, lease_s=LEASE_S)
    leases = Leases(LEASE_S)
    leases.add(task.lease_id, 1, time.monotonic())
    executor = Executor(App(), Slots(1, (QueueSlots("default"),)), leases, lambda finished: None)
    info = WorkerInfo(id=worker, name="test", queues=("default",), names=(), slots=1, lease_s=LEASE_S, version="0")
    made = Heartbeat(Link(dsn, "heartbeat", worker="test", deadline_s=1.0), info, leases, executor, random.Random(1))
    yield made
    made.stop()


def left_s(connection: Connection) -> float:
    """Return the seconds that the lease has left."""
    found: float = value(
        connection, "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM pgtasks.leases"
    )
    return found


@pytest.mark.slow
@pytest.mark.timeout(30)
async def test_an_engine_that_stands_still_loses_its_leases(
    beating: Heartbeat, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would write its outcomes; when it goes on, so do the heartbeats."""
    monkeypatch.setattr(heartbeat, "ENGINE_SILENT_S_MIN", LEASE_S)
    beating.start()
    await asyncio.sleep(2 * LEASE_S)
    assert left_s(connection) > 0
    time.sleep(4 * LEASE_S)  # noqa: ASYNC251 - the fault that the test is about
    assert left_s(connection) < 0
    assert caplog.text.count("no heartbeat for an engine that stands still") == 1
    await asyncio.sleep(LEASE_S)
    assert left_s(connection) > 0


@pytest.mark.timeout(30)
def test_a_handler_that_blocks_its_loop_keeps_its_lease(
    connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """The engine's loop is another one: a blocked handlers' loop costs no lease, however long."""
    worker = start_worker(lease_s=1.0).wait_ready()
    task_id = value(connection, """SELECT pgtasks.enqueue('block', '{"seconds": 5}')""")
    worker.wait_output("handlers' loop is blocked")
    wait_until(lambda: steps.status(connection, task_id) == "completed")
    assert len(trace.marks("start")) == 1
    assert steps.outcomes(connection, task_id) == []


async def test_a_thread_that_does_not_start_is_no_endless_wait(
    beating: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts it is told."""

    async def fail() -> None:
        raise SystemExit

    monkeypatch.setattr(beating, "_beat_until_cancelled", fail)
    with pytest.raises(RuntimeError, match="did not start"):
        beating.start()
    await asyncio.wait_for(beating.until_ended(), 5)


async def test_the_end_of_the_thread_is_told(beating: Heartbeat) -> None:
    """A worker whose leases nobody renews must not go on."""
    beating.start()
    ended = asyncio.create_task(beating.until_ended())
    await asyncio.sleep(0.1)
    assert not ended.done()
    beating.stop()
    await asyncio.wait_for(ended, 5)


@pytest.mark.timeout(30)
async def test_a_locked_lease_is_asked_for_again_soon(beating: Heartbeat, dsn: str, connection: Connection) -> None:
    """An open transaction holds the lease's row for longer than its time: it is renewed as soon as that ends."""
    beating.start()
    with steps.connect(dsn) as other, other.transaction():
        rows(other, "SELECT 1 FROM pgtasks.leases FOR UPDATE")
        await asyncio.sleep(LEASE_S)
    await asyncio.sleep(LEASE_S / 4)
    assert left_s(connection) > LEASE_S / 2
