"""D-05: a worker works as a role whose settings would break a program that relied on defaults."""

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.leases.roles import worker_role
from tests.trace import Trace

SETTINGS = {
    "statement_timeout": "200ms",
    "lock_timeout": "100ms",
    "idle_in_transaction_session_timeout": "300ms",
    "idle_session_timeout": "500ms",
    "TimeZone": "Asia/Kathmandu",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "search_path": "",
    "default_transaction_isolation": "serializable",
}


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_worker_works_whatever_its_role_has_set(
    connection: Connection, start_worker: StartWorker, trace: Trace
) -> None:
    """It runs tasks longer than its lease, sweeps another's, sleeps, wakes up, and reports no trouble."""
    with worker_role(connection, "odd_worker", SETTINGS) as address:
        # It sleeps for longer than its role lets a session idle.
        worker = start_worker("--safety-poll=5", address=address, lease_s=1.0)
        worker.wait_output("worker started")
        rows(connection, """INSERT INTO pgtasks.tasks (name, payload) VALUES ('hold', '{"seconds": 2.5}')""")
        orphan = value(
            connection,
            """INSERT INTO pgtasks.tasks (name, payload, state, attempt, lease_id, claimed_at)
            VALUES ('tick', '{"seconds": 0}', 'running', 1, 1, now()) RETURNING id""",
        )
        rows(
            connection,
            "INSERT INTO pgtasks.leases (id, worker_id, expires_at, task_ids) OVERRIDING SYSTEM VALUE"
            " VALUES (1, gen_random_uuid(), now(), ARRAY[%s::bigint])",
            orphan,
        )
        wait_until(lambda: value(connection, "SELECT count(*) = 2 FROM pgtasks.history"), 15)
        assert steps.outcomes(connection, orphan) == ["worker_lost"]
        later = value(connection, "SELECT pgtasks.enqueue('later')")
        wait_until(lambda: steps.status(connection, later) == "completed")
        assert value(connection, "SELECT count(*) FROM pgtasks.worker_stats WHERE alive") == 1
        connected = rows(connection, "SELECT backend_start FROM pg_stat_activity WHERE usename = 'odd_worker'")
        assert 4 <= len(connected) <= 5
        worker.terminate()
        assert worker.wait() == 0
    assert "unavailable" not in worker.output()
    assert "failed" not in worker.output().replace("task failed", "")
