"""Worker processes whose wall clock is wrong, jumps, or stands still with them: only the database's counts."""

import math
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pgtasks.cron import CronSchedule
from tests.clocks import HAS_FAKETIME, Clock, Kind
from tests.database import Connection, rows, value, wait_until
from tests.long import IS_LONG, LONG
from tests.schedules.fleet import APP, cpu_s
from tests.schedules.helpers import add, assert_paired, fired, gaps, outcomes
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TWO_HOURS_S = 7200.0
# How long it is watched after each jump, how much of a processor it may use in that time (or twice
# what it used before, on a machine so busy that this is more), and how long it stands still. A loop
# that spins uses all of a processor.
WATCH_S, CPU_SHARE_MAX, STOP_S = (10.0, 0.05, 600.0) if IS_LONG else (2.0, 0.6, 2.5)
KINDS = [
    "patched",
    pytest.param("faketime", marks=[LONG, pytest.mark.skipif(not HAS_FAKETIME, reason="needs libfaketime")]),
]


def told_at(line: str) -> datetime:
    """Give what the process took for the time when it printed a line."""
    return datetime.fromisoformat(line.split(maxsplit=1)[0])


def cpu_share(process: WorkerProcess) -> float:
    """Give how much of a processor it uses for some time."""
    used = cpu_s(process.pid)
    time.sleep(WATCH_S)  # the span in which it must not spin
    return (cpu_s(process.pid) - used) / WATCH_S


def watch(process: WorkerProcess, connection: Connection, shift_s: float, cpu_share_before: float) -> None:
    """Check that a process whose clock was just set does not spin, does not flood its log, and goes on firing."""
    printed, before = len(process.output().splitlines()), fired(connection, "s")
    assert cpu_share(process) < max(CPU_SHARE_MAX, 2 * cpu_share_before)
    wait_until(lambda: fired(connection, "s") >= before + 2, hint=process.output)
    said = process.output().splitlines()[printed:]
    assert len([line for line in said if "schedules fired" not in line]) <= WATCH_S, said
    assert len(said) <= 2 + fired(connection, "s") - before + WATCH_S
    # The clock did jump, or this would have been no test.
    ahead = told_at(said[-1]) - value(connection, "SELECT clock_timestamp()")
    assert abs(ahead.total_seconds() - shift_s) < 60.0


def assert_hourly_is_right(connection: Connection) -> None:
    """Check that the next fire of a schedule that does not fire meanwhile is the next one."""
    now, found = rows(connection, "SELECT clock_timestamp(), next_fire FROM pgtasks.schedules WHERE name = 'hourly'")[0]
    assert abs(found - CronSchedule("@hourly").next_after(now)) in {timedelta(), timedelta(hours=1)}
    assert found > now - timedelta(minutes=1)


@pytest.mark.parametrize("kind", KINDS)
def test_jumps_of_the_clock(dsn: str, connection: Connection, tmp_path: Path, kind: Kind) -> None:
    """K-15: two hours ahead, two hours back, and stopped for a while with the clock set meanwhile, as by a suspend."""
    add(connection, "s", missed="all")
    add(connection, "hourly", "@hourly")
    clock = Clock(tmp_path, kind)
    with WorkerProcess(APP, dsn, "--concurrency=2", "--log-level=info", env=clock.env) as process:
        wait_until(lambda: fired(connection, "s") >= 2, 30.0, hint=process.output)
        share = cpu_share(process)
        began = value(connection, "SELECT clock_timestamp()")
        for shift_s in (TWO_HOURS_S, -TWO_HOURS_S):
            clock.set(shift_s)
            watch(process, connection, shift_s, share)
            assert_hourly_is_right(connection)
        assert outcomes(connection, "s") == ["fired"] * fired(connection, "s")
        late = "SELECT max(fired_at - fire_time) FROM pgtasks.schedule_fires WHERE fire_time > %s"
        assert value(connection, late, began).total_seconds() < 5.0
        stopped = value(connection, "SELECT clock_timestamp()")
        process.signal(signal.SIGSTOP)
        clock.set(STOP_S)
        time.sleep(STOP_S)  # several slots pass while it stands still
        process.signal(signal.SIGCONT)
        after = "SELECT count(*) FROM pgtasks.schedule_fires WHERE fire_time > %s"
        wait_until(lambda: value(connection, after, stopped) >= math.floor(STOP_S), hint=process.output)
        watch(process, connection, STOP_S, share)
        assert_hourly_is_right(connection)
        process.terminate()
        assert process.wait() == 0
    assert gaps(connection) == []
    # With "all", a hundred missed slots are fired; what is older is recorded as missed.
    assert max(0, STOP_S - 102) <= outcomes(connection, "s").count("missed") <= max(0, STOP_S - 98)
    assert_paired(connection)


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


def test_a_late_clock_fires_nothing_early_or_late(dsn: str, connection: Connection, tmp_path: Path) -> None:
    """K-17: the worker's clock is ninety seconds behind; only the database's counts."""
    add(connection, "s")
    env = Clock(tmp_path, "patched", -90.0).env
    with WorkerProcess(APP, dsn, "--concurrency=2", env=env) as process:
        wait_until(lambda: fired(connection, "s") >= 4, hint=process.output)
        (said,) = [line for line in process.output().splitlines() if "worker started" in line]
    # The first slot was due while the process was still starting.
    spans = rows(connection, "SELECT fired_at - fire_time FROM pgtasks.schedule_fires ORDER BY fire_time")
    lateness = [span.total_seconds() for (span,) in spans]
    assert min(lateness) >= 0.0
    assert max(lateness[1:]) < 2.0
    started = value(connection, "SELECT min(fired_at) FROM pgtasks.schedule_fires")
    assert (started.astimezone(UTC) - told_at(said)).total_seconds() > 80, "its clock was not behind"
