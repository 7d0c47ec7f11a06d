"""Worker processes that fire: killed, stopped, and with wrong clocks."""

import os
import signal
import time
from pathlib import Path

import psycopg
import pytest

from tests.database import Connection, Server, rows, value, wait_until
from tests.schedules.fleet import APP, Fleet, worker
from tests.schedules.helpers import add, assert_paired, fired, gaps, outcomes
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LONG = bool(os.environ.get("PGTASKS_LONG_TESTS"))
SCHEDULES = 20
# What Python and its libraries take for the time is a minute and a half behind.
LATE_CLOCK = """
import datetime, time
_time = time.time
time.time = lambda: _time() - 90.0
class Late(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(time.time(), tz)
    @classmethod
    def utcnow(cls):
        return datetime.datetime.utcfromtimestamp(time.time())
_datetime = datetime.datetime
Late.__name__ = "datetime"
"""


def test_random_kills(dsn: str, connection: Connection) -> None:
    """The issue's acceptance, K-09: one fire and one task per schedule and slot, and no slot is missing."""
    processes, seconds, every_s = (12, 120.0, 1.0) if LONG else (4, 8.0, 0.7)
    for number in range(SCHEDULES):
        add(connection, f"s{number}", missed="all", missed_max=1000)
    with Fleet([worker(dsn) for _ in range(processes)], seed=1) as fleet:
        wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.schedule_fires"), 30.0, hint=fleet.outputs)
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


def test_twelve_schedulers_and_purged_tasks(dsn: str, connection: Connection) -> None:
    """K-09: a record of the fire that outlives the run is what keeps the next scheduler from firing again."""
    for number in range(SCHEDULES):
        add(connection, f"s{number}", missed="all")
    with Fleet([worker(dsn) for _ in range(3)], seed=2) as fleet:
        until = time.monotonic() + 60.0
        while value(connection, "SELECT count(DISTINCT fire_time) FROM pgtasks.schedule_fires") < 5:
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


def test_a_process_that_stood_still(dsn: str, connection: Connection) -> None:
    """K-15: stopped across several slots and continued: the policy decides, and it does not spin."""
    policies = ("skip", "latest", "all")
    for policy in policies:
        add(connection, policy, missed=policy)
    with WorkerProcess(APP, dsn, "--concurrency=2", "--log-level=info") as process:
        wait_until(lambda: fired(connection, "all") >= 2, hint=process.output)
        process.signal(signal.SIGSTOP)
        time.sleep(4.2)  # several slots pass while it stands still
        before = len(outcomes(connection, "all"))
        process.signal(signal.SIGCONT)
        wait_until(lambda: len(outcomes(connection, "all")) >= before + 5, hint=process.output)
        used = cpu_s(process.pid)
        lines = len(process.output().splitlines())
        time.sleep(2.0)  # the span in which it must not spin
        assert cpu_s(process.pid) - used < 0.5
        assert len(process.output().splitlines()) - lines <= 6
    assert gaps(connection) == []
    for policy in policies:
        found = outcomes(connection, policy)
        assert (policy, found.count("missed") >= 2) == (policy, policy != "all")
    assert_paired(connection)


def cpu_s(pid: int) -> float:
    """Give the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_late_clock_fires_nothing_early_or_late(dsn: str, connection: Connection, tmp_path: Path) -> None:
    """K-17: the worker's clock is ninety seconds behind; only the database's counts."""
    (tmp_path / "sitecustomize.py").write_text(LATE_CLOCK)
    add(connection, "s")
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    with WorkerProcess(APP, dsn, "--concurrency=2", env=env) as process:
        wait_until(lambda: fired(connection, "s") >= 4, hint=process.output)
        (said,) = [line for line in process.output().splitlines() if "worker started" in line]
    # The first slot was due while the process was still starting.
    spans = rows(connection, "SELECT fired_at - fire_time FROM pgtasks.schedule_fires ORDER BY fire_time")
    lateness = [span.total_seconds() for (span,) in spans]
    assert min(lateness) >= 0.0
    assert max(lateness[1:]) < 2.0
    started = "SELECT extract(epoch FROM min(fired_at) - %s::timestamptz) FROM pgtasks.schedule_fires"
    assert value(connection, started, said.split()[0]) > 80, "its clock was not behind"


def test_a_worker_hears_of_a_new_schedule(dsn: str, connection: Connection) -> None:
    """It sleeps with nothing to do, for fifteen seconds; a plain INSERT wakes it."""
    with WorkerProcess(APP, dsn, "--concurrency=2") as process:
        process.wait_ready()
        time.sleep(1.5)  # its first look, and a deaf one's second
        sessions = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/schedule%%'"
        last = f"SELECT max(query_start) FROM pg_stat_activity WHERE pid IN ({sessions})"
        asked = value(connection, last)
        time.sleep(1.5)  # the span in which it must not ask
        assert value(connection, last) == asked
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
