"""D-07: ids of tasks and leases past what four bytes hold work everywhere."""

from tests.database import FIRST_ID, Connection, rows, value, wait_until
from tests.workers import WorkerProcess


def test_no_column_or_sequence_is_too_narrow(connection: Connection) -> None:
    """Every id, and everything that holds one."""
    narrow = rows(
        connection,
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'pgtasks'"
        " AND (column_name = 'id' OR column_name LIKE '%\\_id' OR column_name LIKE '%\\_ids')"
        " AND udt_name NOT IN ('int8', '_int8', 'uuid')",
    )
    assert narrow == []
    sequences = "SELECT DISTINCT data_type::text FROM pg_sequences WHERE schemaname = 'pgtasks'"
    assert rows(connection, sequences) == [("bigint",)]


def test_a_workers_whole_life_with_large_ids(dsn: str, connection: Connection) -> None:
    """Success, retry, dead letter, cancellation and a lost worker, all past 3,000,000,000."""
    for call in (
        "SELECT pgtasks.enqueue('add', '{\"a\": 1, \"b\": 2}')",
        "SELECT pgtasks.enqueue('flaky', '{\"n\": 1}')",
        "SELECT pgtasks.enqueue('fail_for_good')",
    ):
        assert value(connection, call) >= FIRST_ID
    running = value(connection, "SELECT pgtasks.enqueue('sleep', '{\"seconds\": 60}')")
    with WorkerProcess("tests.apps.basic:app", dsn) as process:
        process.wait_ready()
        runs = "SELECT count(*) FROM pgtasks.tasks WHERE state = 'running' AND lease_id >= %s"
        wait_until(lambda: value(connection, runs, FIRST_ID) == 1)
        assert value(connection, "SELECT pgtasks.cancel(%s)", running) == "requested"
        ended = "SELECT count(*) FROM pgtasks.history WHERE lease_id >= %s"
        wait_until(lambda: value(connection, ended, FIRST_ID) == 3)
    assert value(connection, "SELECT id FROM pgtasks.dead_letters") >= FIRST_ID
    assert value(connection, "SELECT min(task_id) FROM pgtasks.attempts") >= FIRST_ID
