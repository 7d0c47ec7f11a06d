"""After a database-wide stall of twice the lease no live worker's task is reclaimed.

docs/adr/0005-stalls-and-fencing.md says what that means for handlers that were stopped meanwhile.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships without types
import psycopg
import pytest

from pgtasks.embedded import PrivateServer
from tests.database import Connection, empty, prepare, rows, value, wait_until
from tests.leases.conftest import StartWorker
from tests.trace import Trace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
LEASE_S = 1.5
Own = tuple[PrivateServer, str]
Stall = Callable[[PrivateServer, str], AbstractContextManager[None]]


@contextmanager
def frozen(server: PrivateServer, _: str) -> Iterator[None]:
    """Stop every process of the server, as a host that swaps or a hypervisor that pauses does."""
    assert server.pid is not None
    postmaster = psutil.Process(server.pid)
    stopped = [postmaster, *postmaster.children(recursive=True)]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            process.send_signal(signal.SIGCONT)


@contextmanager
def locked(_: PrivateServer, dsn: str) -> Iterator[None]:
    """Lock the leases, as a careless ALTER TABLE or VACUUM FULL does."""
    with psycopg.connect(dsn) as connection:
        connection.execute("LOCK TABLE pgtasks.leases IN ACCESS EXCLUSIVE MODE")
        yield


@contextmanager
def down(server: PrivateServer, _: str) -> Iterator[None]:
    """Let the server crash and stay away."""
    server.stop("immediate")
    try:
        yield
    finally:
        server.start()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Own]:
    """A server of these tests' own, migrated, that loses nothing committed when it crashes."""
    bindir = os.environ.get("PGTASKS_TEST_PG_BINDIR")
    with PrivateServer(bindir=Path(bindir) if bindir else None, options={"fsync": "off"}) as server:
        yield server, prepare(server)


def enqueue(connection: Connection, name: str, *seconds: float) -> list[int]:
    """Enqueue one task for each number of seconds."""
    found = rows(
        connection,
        "SELECT pgtasks.enqueue(%s, jsonb_build_object('seconds', s)) FROM unnest(%s::float[]) s",
        name,
        list(seconds),
    )
    return [task_id for (task_id,) in found]


@pytest.mark.parametrize("stall", [frozen, locked, down])
def test_live_workers_keep_their_tasks_through_a_stall(
    stall: Stall, own_server: Own, start_worker: StartWorker, trace: Trace
) -> None:
    """Handlers that end in the stall are completed after it; those stopped for it run again, uncharged."""
    server, dsn = own_server
    with psycopg.connect(dsn, autocommit=True) as connection:
        empty(connection)
    workers = [start_worker("--concurrency=6", address=dsn, lease_s=LEASE_S) for _ in range(3)]
    for worker in workers:
        worker.wait_output("worker started")
    with psycopg.connect(dsn, autocommit=True) as connection:
        stubborn = enqueue(connection, "hold", *[1.0] * 4, *[4.0] * 4)
        stopped = enqueue(connection, "tick", *[2.5] * 4)
        wait_until(lambda: len(trace.marks("start")) == 12)
    with stall(server, dsn):
        time.sleep(2 * LEASE_S)  # Twice the lease is what the promise is about.
    with psycopg.connect(dsn, autocommit=True) as connection:

        def finished() -> bool:
            return bool(value(connection, "SELECT count(*) = 12 FROM pgtasks.history WHERE status = 'completed'"))

        wait_until(finished, 30, hint=lambda: rows(connection, "SELECT * FROM pgtasks.all_tasks"))
        assert rows(connection, "SELECT DISTINCT attempt FROM pgtasks.history") == [(1,)]
        assert rows(connection, "SELECT task_id, outcome, error FROM pgtasks.attempts") == []
    starts = [mark.task_id for mark in trace.marks("start")]
    assert [starts.count(task_id) for task_id in stubborn] == [1] * 8
    # Never two at once: the one before was stopped before the lease ended.
    for task_id in stopped:
        leases = [mark.lease_id for mark in trace.marks(task_id=task_id)]
        assert leases == sorted(leases)
    assert all(worker.running for worker in workers)
    assert "lease lost" not in "".join(worker.output() for worker in workers)
