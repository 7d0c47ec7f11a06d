"""K-16: five thousand schedules are due at one moment, and twenty processes are there to fire them."""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta

import psycopg
import pytest

from pgtasks.engine.scheduler import BATCH_MAX
from tests.database import Connection, rows, start_server, value, wait_until
from tests.long import IS_LONG
from tests.schedules.fleet import Start, scheduler, worker
from tests.schedules.helpers import Rig, assert_paired, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SCHEDULES, PROCESSES = 5000, 20
ALL_IN_S, ENQUEUE_P99_S = 10.0, 0.25
# What the processes need to start, and what they then need to plan everything and be idle again.
START_S, PLAN_S = 120.0, 30.0


def add_many(connection: Connection, expression: str, *, seconds: bool) -> None:
    """Insert all schedules with one expression."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, seconds, task)"
        " SELECT 's' || n, %s, %s, 'echo' FROM generate_series(1, %s) AS n",
        expression,
        seconds,
        SCHEDULES,
    )


def assert_each_fired_once(connection: Connection) -> None:
    """Check that there is one fire of each schedule, and one task of each fire."""
    assert rows(
        connection, "SELECT outcome, count(*), count(DISTINCT schedule) FROM pgtasks.schedule_fires GROUP BY 1"
    ) == [("fired", SCHEDULES, SCHEDULES)]
    assert_paired(connection)


async def test_five_thousand_at_one_moment(dsn: str, connection: Connection) -> None:
    """In batches, each slot once, by several schedulers that begin at different ends."""
    add_many(connection, "0 0 * * *", seconds=False)
    rows(
        connection,
        "UPDATE pgtasks.schedules SET planned_from = date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"
        " - interval '1 s', next_fire = date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'",
    )
    began = time.monotonic()
    async with Rig(dsn, 8) as rig:
        left = "SELECT count(*) FROM pgtasks.schedules WHERE next_fire <= now()"
        await until(lambda: value(connection, left) == 0, 60.0)
        took_s = time.monotonic() - began
        sent = rig.statements
    print(f"{SCHEDULES} schedules, 8 schedulers: {took_s:.2f} s, {sent} statements")  # noqa: T201 - the figures of this run
    assert_each_fired_once(connection)
    # Ten batches if nobody ever collided; far from one statement per schedule however they do.
    assert SCHEDULES // BATCH_MAX <= sent < 400
    assert value(connection, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def transactions(connection: Connection) -> int:
    """Count the transactions of this database."""
    found: int = value(connection, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    return found


@contextmanager
def enqueues(dsn: str) -> Iterator[list[tuple[float, float]]]:
    """Enqueue tasks that have nothing to do with it, and note when each began and how long it took."""
    took: list[tuple[float, float]] = []
    stop = threading.Event()

    def work() -> None:
        with psycopg.connect(dsn, autocommit=True) as mine:
            while not stop.wait(0.005):
                began = time.time()
                mine.execute("SELECT pgtasks.enqueue('unrelated', queue => 'elsewhere')")
                took.append((began, time.time() - began))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def roomy_dsn() -> Iterator[str]:
    """The address of a migrated database of a server that takes the connections of twenty workers."""
    with start_server(max_connections="200") as server:
        yield server.create(migrated=True)


@pytest.mark.skipif(not IS_LONG, reason="takes three minutes and a quiet machine: PGTASKS_LONG_TESTS=1")
@pytest.mark.parametrize("kind", ["scheduler", "worker"])
def test_twenty_processes(roomy_dsn: str, kind: str) -> None:
    """All are in within ten seconds, each once, and nobody else waits for it."""
    with psycopg.connect(roomy_dsn, autocommit=True) as connection:
        herd(roomy_dsn, connection, kind)


def herd(dsn: str, connection: Connection, kind: str) -> None:
    """Have twenty idle processes fire everything at one moment, and measure."""
    start: Start = scheduler(dsn) if kind == "scheduler" else worker(dsn)
    with ExitStack() as stack:
        processes = [stack.enter_context(start()) for _ in range(PROCESSES)]
        for process in processes:
            process.wait_output(f"{kind} started", START_S)
        now: datetime = value(connection, "SELECT date_trunc('second', clock_timestamp())")
        at = now + timedelta(seconds=PLAN_S)
        add_many(connection, f"{at:%-S %-M %-H %-d %-m} *", seconds=True)
        planned = "SELECT count(*) FROM pgtasks.schedules WHERE next_fire IS NULL"
        wait_until(lambda: value(connection, planned) == 0, PLAN_S)
        assert value(connection, "SELECT clock_timestamp()") < at - timedelta(seconds=2), "they were not idle in time"
        count = "SELECT count(*) FROM pgtasks.schedule_fires"
        committed = transactions(connection)
        with enqueues(dsn) as took:
            wait_until(lambda: value(connection, count) == SCHEDULES, PLAN_S + 60.0, interval_s=0.25)
        last: datetime = value(connection, "SELECT max(fired_at) FROM pgtasks.schedule_fires")
        said = [line for process in processes for line in process.output().splitlines() if "schedules fired" in line]
    all_in_s = (last - at).total_seconds()
    spent = [spent_s for began, spent_s in took if at.timestamp() <= began <= last.timestamp()]
    p99_s = statistics.quantiles(spent, n=100)[98]
    print(  # noqa: T201 - the figures of this run
        f"{SCHEDULES} schedules, {PROCESSES} {kind} processes: all in after {all_in_s:.2f} s, {len(said)} batches,"
        f" {transactions(connection) - committed} transactions, {len(took)} enqueues;"
        f" {len(spent)} enqueues meanwhile, p99 {p99_s * 1000:.0f} ms, worst {max(spent) * 1000:.0f} ms"
    )
    assert_each_fired_once(connection)
    assert SCHEDULES // BATCH_MAX <= len(said) < 400
    assert all_in_s < ALL_IN_S
    assert p99_s < ENQUEUE_P99_S
