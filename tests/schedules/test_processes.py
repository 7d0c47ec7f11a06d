"""Worker processes that fire, and are killed meanwhile."""

import time
from pathlib import Path

import psycopg
import pytest

from tests.clocks import Clock
from tests.database import Connection, Server, rows, value, wait_until
from tests.long import IS_LONG
from tests.schedules.fleet import APP, Fleet, worker
from tests.schedules.helpers import add, assert_paired, fired, gaps, outcomes
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SCHEDULES = 20


def test_random_kills(dsn: str, connection: Connection) -> None:
    """The issue's acceptance, K-09: one fire and one task per schedule and slot, and no slot is missing."""
    processes, seconds, every_s = (12, 120.0, 1.0) if IS_LONG else (4, 8.0, 0.7)
    for number in range(SCHEDULES):
        add(connection, f"s{number}", missed="all", missed_max=1000)
    with Fleet([worker(dsn) for _ in range(processes)], seed=1) as fleet:
        wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.schedule_fires"), 90.0, hint=fleet.outputs)
        fleet.kill_for(seconds, every_s)
        killed = "SELECT clock_timestamp()"
        end = value(connection, killed)
        # After the last kill everything that was due is caught up within two looks and two seconds.
        behind = "SELECT count(*) FROM pgtasks.schedules WHERE next_fire <= %s OR next_fire IS NULL"
        wait_until(lambda: value(connection, behind, end) == 0, hint=fleet.outputs)
    late = "SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY fired_at - fire_time) FROM pgtasks.schedule_fires"
    count, slots, worst = rows(
        connection,
        "SELECT count(*), count(DISTINCT fire_time), max(fired_at - fire_time) FROM pgtasks.schedule_fires",
    )[0]
    print(  # noqa: T201 - the figures of this run
        f"{processes} workers, {fleet.kills} kills: {count} fires of {slots} slots,"
        f" worst {worst.total_seconds():.2f} s late, p99 {value(connection, late).total_seconds():.3f} s"
    )
    assert rows(connection, "SELECT DISTINCT outcome FROM pgtasks.schedule_fires") == [("fired",)]
    assert gaps(connection) == []
    assert count >= SCHEDULES * seconds
    assert_paired(connection)


def test_twelve_schedulers_and_purged_tasks(dsn: str, connection: Connection, tmp_path: Path) -> None:
    """K-09: a record of the fire that outlives the run is what keeps the next scheduler from firing again.

    The clocks of two of them are half a minute ahead and behind.
    """
    processes, slots = (12, 10) if IS_LONG else (3, 5)
    wrong = [worker(dsn, env=Clock(tmp_path, "patched", shift_s).env) for shift_s in (30.0, -30.0)]
    for number in range(SCHEDULES):
        add(connection, f"s{number}", missed="all")
    with Fleet([*wrong, *[worker(dsn)] * (processes - len(wrong))], seed=2) as fleet:
        for process in fleet.processes:
            process.wait_output("worker started", 60.0)
        first = value(connection, "SELECT count(DISTINCT fire_time) FROM pgtasks.schedule_fires")
        until = time.monotonic() + 60.0
        while value(connection, "SELECT count(DISTINCT fire_time) FROM pgtasks.schedule_fires") < first + slots:
            rows(connection, "DELETE FROM pgtasks.history")
            time.sleep(0.02)  # the purges come all the time, not as fast as they can
            assert time.monotonic() < until, fleet.outputs()
        for process in fleet.processes:
            process.terminate()
            assert process.wait() == 0
    rows(connection, "DELETE FROM pgtasks.history")
    before = value(connection, "SELECT count(*) FROM pgtasks.schedule_fires")
    assert gaps(connection) == []
    added = value(connection, "SELECT last_value FROM pgtasks.tasks_id_seq")
    first = value(connection, "SELECT min(task_id) FROM pgtasks.schedule_fires")
    assert added - first + 1 == before


def test_a_worker_hears_of_a_new_schedule(dsn: str, connection: Connection) -> None:
    """It sleeps with nothing to do, for fifteen seconds; a plain INSERT wakes it."""
    with WorkerProcess(APP, dsn, "--concurrency=2") as process:
        process.wait_ready()
        time.sleep(1.5)  # its first look, and a deaf one's second
        # Old fires are pruned in the same session, some time in the first half minute; then there is no last question.
        last = (
            "SELECT max(query_start) FROM pg_stat_activity"
            " WHERE application_name LIKE 'pgtasks/schedule%%' AND query NOT LIKE '-- Forgets fires%%'"
        )
        asked = value(connection, last)
        time.sleep(1.5)  # the span in which it must not ask
        assert value(connection, last) in {asked, None}
        add(connection, "s")
        began = time.monotonic()
        wait_until(lambda: fired(connection, "s"), 3.0, hint=process.output)
        assert time.monotonic() - began < 2.0
        finished = "SELECT count(*) FROM pgtasks.history WHERE headers ->> 'pgtasks.schedule' = 's'"
        wait_until(lambda: value(connection, finished), hint=process.output)


def test_a_fire_that_waits_does_not_hold_up_completions(dsn: str, connection: Connection) -> None:
    """Schedules have a connection of their own: a lock on their table stops them and nothing else."""
    add(connection, "s")
    with WorkerProcess(APP, dsn, "--concurrency=2") as process:
        wait_until(lambda: fired(connection, "s"), hint=process.output)
        with connection.transaction():
            rows(connection, "LOCK TABLE pgtasks.schedules IN ACCESS EXCLUSIVE MODE")
            rows(connection, "SELECT pg_sleep(1.2)")
            # Through another session: this one is in its transaction.
            took = [run_one(dsn) for _ in range(5)]
        assert max(took) < 0.5, process.output()
        before = fired(connection, "s")
        wait_until(lambda: fired(connection, "s") > before, hint=process.output)


def run_one(dsn: str) -> float:
    """Give how long a task takes from its insertion to its history."""
    with psycopg.connect(dsn, autocommit=True) as other:
        began = time.monotonic()
        task_id = value(other, "SELECT pgtasks.enqueue('echo')")
        done = "SELECT count(*) FROM pgtasks.history WHERE id = %s"
        wait_until(lambda: value(other, done, task_id), interval_s=0.005)
        return time.monotonic() - began


def test_no_error_reaches_the_servers_log(server: Server, dsn: str, connection: Connection) -> None:
    """K-14: a slot that must not overlap is recorded as skipped; nothing is refused on the way."""
    begin = len(server.private.log_path.read_text())
    add(connection, "busy", overlap="skip", task="sleep", payload='{"seconds": 30}', missed="all")
    add(connection, "free", missed="all")
    with Fleet([worker(dsn) for _ in range(3)], seed=3) as fleet:
        wait_until(lambda: fired(connection, "free") >= 4, 20.0, hint=fleet.outputs)
    assert outcomes(connection, "busy")[:3] == ["fired", "skipped_overlap", "skipped_overlap"]
    assert_paired(connection)
    with pytest.raises(psycopg.errors.DivisionByZero):
        rows(connection, "SELECT 1 / 0")
    said = [line for line in server.private.log_path.read_text()[begin:].splitlines() if "ERROR:" in line]
    assert [line.rpartition("ERROR:")[2].strip() for line in said] == ["division by zero"]
