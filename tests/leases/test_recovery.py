"""L-07: each part of a worker outlives what can happen to its connection and its statements."""

import time
from collections.abc import Iterator

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.leases.roles import worker_role
from tests.trace import Trace
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
BACK_S = 5.0
PARTS = ("claim", "finish", "heartbeat", "listen", "schedule")
BACKENDS = "FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/' || %s || '/%%'"
# A trigger that fails the statements of one part a few times, with any SQLSTATE.
FAULT = """
CREATE SEQUENCE public.faults;
CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.faults') <= 3 THEN
        RAISE 'a fault as ordered' USING ERRCODE = TG_ARGV[0];
    END IF;
    RETURN NULL;
END $$;
"""
TABLES = {
    "claim": "INSERT ON pgtasks.leases",
    "finish": "INSERT ON pgtasks.history",
    "heartbeat": "UPDATE ON pgtasks.workers",
}
STATES = {
    "statement timeout": "57014",
    "serialization failure": "40001",
    "deadlock": "40P01",
    "idle in transaction": "25P03",
    "lock not available": "55P03",
    "disk full": "53100",
}


def backends(connection: Connection, part: str) -> set[int]:
    """Return the server processes of a part's connections."""
    return {pid for (pid,) in rows(connection, f"SELECT pid {BACKENDS}", part)}


def assert_working(connection: Connection, worker: WorkerProcess, limit_s: float = BACK_S) -> None:
    """Check that a task inserted now is done within seconds, and that the heart beats."""
    began = time.monotonic()
    task_id = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 0}')""")
    wait_until(
        lambda: steps.status(connection, task_id) == "completed",
        limit_s,
        hint=lambda: f"the task is not done:\n{worker.output()}",
    )
    seen = "SELECT last_seen_at FROM pgtasks.workers"
    before = value(connection, seen)
    wait_until(lambda: value(connection, seen) > before, max(0.1, limit_s - (time.monotonic() - began)))


def assert_firing(connection: Connection, worker: WorkerProcess) -> None:
    """Check that a schedule made now fires within seconds."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, task, payload)"
        " VALUES ('every second', '@every 1s', 'tick', '{\"seconds\": 0}')",
    )
    wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.schedule_fires"), BACK_S, hint=worker.output)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_comes_back_after_its_backend_was_terminated(
    part: str, connection: Connection, start_worker: StartWorker
) -> None:
    """57P01 on one connection, idle and asleep as the worker is."""
    worker = start_worker().wait_ready()
    wait_until(lambda: backends(connection, part))
    gone = backends(connection, part)
    rows(connection, f"SELECT pg_terminate_backend(pid, 5000) {BACKENDS}", part)
    assert_working(connection, worker)
    assert_firing(connection, worker)
    wait_until(lambda: backends(connection, part) - gone, BACK_S)
    assert rows(connection, "SELECT 1 FROM pgtasks.attempts") == []


@pytest.fixture
def faults(connection: Connection) -> Iterator[None]:
    """The function that fails as ordered, and the sequence that counts how often."""
    rows(connection, "DROP SEQUENCE IF EXISTS public.faults")
    rows(connection, "DROP FUNCTION IF EXISTS public.fail")
    connection.execute(FAULT.encode())
    yield
    rows(connection, "DROP FUNCTION public.fail CASCADE")
    rows(connection, "DROP SEQUENCE public.faults")


@pytest.mark.parametrize("part", TABLES)
def test_every_part_outlives_errors_of_its_statements(
    part: str, faults: None, connection: Connection, start_worker: StartWorker
) -> None:
    """Each state comes three times; nothing is lost, and the worker says what happened."""
    worker = start_worker().wait_ready()
    for state in STATES.values():
        rows(connection, "SELECT setval('public.faults', 1, false)")
        rows(
            connection,
            f"CREATE TRIGGER fault AFTER {TABLES[part]} FOR EACH STATEMENT EXECUTE FUNCTION public.fail('{state}')",
        )
        assert_working(connection, worker)
        wait_until(lambda: value(connection, "SELECT last_value > 3 FROM public.faults"), BACK_S)
        rows(connection, f"DROP TRIGGER fault ON {TABLES[part].split()[-1]}")
    assert worker.running
    assert worker.output().count("a fault as ordered") >= len(STATES)
    assert rows(connection, "SELECT outcome, error FROM pgtasks.attempts") == []


def test_a_worker_waits_for_a_free_connection(connection: Connection, start_worker: StartWorker, trace: Trace) -> None:
    """53300 on all its connections: it tries on, keeps what it holds, and is back when one is free."""
    with worker_role(connection, "limited_worker", {}) as address:
        worker = start_worker(address=address)
        worker.wait_output("worker started")
        task_id = value(connection, """SELECT pgtasks.enqueue('hold', '{"seconds": 1}')""")
        wait_until(lambda: trace.marks("start"))
        rows(connection, "ALTER ROLE limited_worker CONNECTION LIMIT 0")
        rows(
            connection, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'limited_worker'"
        )
        wait_until(lambda: trace.marks("end"))
        worker.wait_output("too many connections")
        assert steps.status(connection, task_id) == "running"
        rows(connection, "ALTER ROLE limited_worker CONNECTION LIMIT -1")
        wait_until(lambda: steps.status(connection, task_id) == "completed", BACK_S)
        assert_working(connection, worker)
        worker.kill()
    assert len(trace.marks("start", task_id=task_id)) == 1
