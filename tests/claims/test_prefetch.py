"""C-06: a busy worker holds no task that it does not run; another one gets it."""

from tests.database import Connection, rows, value, wait_until
from tests.workers import WorkerProcess

APP = "tests.apps.basic:app"


def test_short_tasks_behind_a_long_one_run_elsewhere(dsn: str, connection: Connection, runs: Connection) -> None:
    """One slot, busy for ten seconds, nine short tasks: the second worker runs them, each in its first attempt."""
    value(connection, "SELECT pgtasks.enqueue('sleep_sync', '{\"seconds\": 10}')")
    with WorkerProcess(APP, dsn, "--concurrency", "1") as busy:
        busy.wait_ready()
        running = "SELECT count(*) FROM pgtasks.tasks WHERE state = 'running'"
        wait_until(lambda: value(connection, running) == 1)
        for _ in range(9):
            value(connection, "SELECT pgtasks.enqueue('record')")
        with WorkerProcess(APP, dsn, "--concurrency", "1") as free:
            wait_until(
                lambda: value(connection, "SELECT count(*) FROM public.runs") == 9,
                timeout_s=6.0,
                hint=lambda: rows(connection, "SELECT id, name, state, attempt FROM pgtasks.tasks"),
            )
            assert rows(connection, "SELECT DISTINCT pid, attempt FROM public.runs") == [(free.pid, 1)]
            # The long one; the last short one may not have been written yet.
            wait_until(lambda: value(connection, running) == 1)
