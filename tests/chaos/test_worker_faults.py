"""Each fault of worker processes really strikes, and is undone."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import psycopg
import pytest

from tests.access import ROLES
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import APP, LEASE_S, striking
from tests.chaos.fleet import Fleet
from tests.chaos.nemesis import Missed, Target
from tests.chaos.nemesis.clocks import SHIFT_S, WorkerClock, shifted
from tests.chaos.nemesis.workers import KillChild, KillWorker, PauseWorker, TerminateWorker, read_process
from tests.database import rows, value, wait_until
from tests.long import LONG
from tests.workers import environment

pytestmark = [
    pytest.mark.pg,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how processes are"),
]

STOPPED, DEAD = "T", {"", "Z", "X"}
FLAGS = ("--lease=2", "--sweep-interval=0.5", "--concurrency=2")
_READY_S = 60.0
_VARIABLE = "CHAOS_CLOCK_SHIFT_S"


@pytest.fixture
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    """Two workers that are ready."""
    with Fleet(APP, lambda _: cluster.dsn, 2, FLAGS) as running:
        yield running.wait_ready()


@pytest.fixture
def struck(cluster: Cluster, fleet: Fleet) -> Target:
    """The cluster with these two workers."""
    return Target(cluster, fleet, lease_s=LEASE_S)


def test_workers_die_freeze_and_stop(struck: Target) -> None:
    """One after the other: killed and replaced, frozen and awake again, asked to stop with exit code 0."""
    fleet = struck.fleet
    before = fleet.pids()
    KillWorker(struck).strike(Random(1))
    (dead,) = (end for end in fleet.exits)
    assert (dead.code, dead.cause, dead.pid in before) == (-9, "kill", True)
    assert len(fleet.pids()) == 2
    assert fleet.restarts == 1
    with struck.cluster.admin() as admin:
        who = "SELECT DISTINCT usename::text FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/%'"
        assert rows(admin, who) == [(ROLES["worker"],)]

    with striking(PauseWorker(struck)) as still:
        wait_until(lambda: STOPPED in states(fleet))
        assert still()
    wait_until(lambda: STOPPED not in states(fleet))

    wait_until(lambda: all(fleet.output(index).count("worker started") >= 1 for index in range(2)), _READY_S)
    wait_until(lambda: fleet.output(dead.index).count("worker started") == 2, _READY_S)
    TerminateWorker(struck).strike(Random(1))
    asked = fleet.exits[-1]
    assert (asked.code, asked.cause) == (0, "terminate")
    assert len(fleet.pids()) == 2


def test_a_dead_fleet_has_nobody_to_strike(cluster: Cluster) -> None:
    """It does not count then."""
    with Fleet(APP, lambda _: cluster.dsn, 0) as fleet, pytest.raises(Missed):
        PauseWorker(Target(cluster, fleet)).strike(Random(1))


def test_workers_die_with_the_process_that_started_them(cluster: Cluster) -> None:
    """Whatever ends it, and though a thread that is long gone has asked for them."""
    program = (
        "import os, sys, threading\n"
        "from tests.chaos.fleet import Fleet\n"
        "fleet = Fleet(sys.argv[1], lambda _: sys.argv[2], 1).__enter__()\n"
        "thread = threading.Thread(target=lambda: fleet.restart(0))\n"
        "thread.start(); thread.join(); fleet.wait_ready()\n"
        "print(fleet.pid(0), fleet.alive(0), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, APP, cluster.dsn],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as harness:
        assert harness.stdout is not None
        pid, alive = harness.stdout.readline().split()
        assert alive == "True"
        harness.kill()
        wait_until(lambda: state(int(pid)) in DEAD)


@pytest.mark.parametrize("shift_s", [-SHIFT_S, SHIFT_S])
def test_a_shifted_program_sees_another_time(shift_s: float) -> None:
    """All its wall clocks agree, and the monotonic one is everybody's."""
    program = (
        "import time, datetime as dt\n"
        "print(time.time(), time.time_ns() / 1e9, dt.datetime.now(dt.UTC).timestamp(), dt.datetime.now().timestamp(),\n"
        "    time.mktime(time.localtime()), time.monotonic())\n"
        "import psycopg\n"
        "assert isinstance(dt.datetime.now(), dt.date) and dt.date.today() + dt.timedelta(1) > dt.date.today()"
    )
    printed = subprocess.check_output(
        [sys.executable, "-c", program],
        env=environment(**shifted(shift_s)),
        text=True,
        stderr=subprocess.STDOUT,
    )
    *clocks, monotonic = map(float, printed.split())
    now = datetime.now(UTC).timestamp()
    assert all(abs(clock - shift_s - now) < 60 for clock in clocks)
    assert abs(monotonic - time.monotonic()) < 60


@LONG
@pytest.mark.slow
def test_a_worker_works_with_another_clock_for_a_while(struck: Target) -> None:
    """One of two has the variables and runs tasks; afterwards none has them."""
    with striking(WorkerClock(struck)) as still:
        wait_until(lambda: _shifted(struck.fleet) == 1)
        assert still()
    assert _shifted(struck.fleet) == 0
    struck.fleet.wait_ready()


@LONG
@pytest.mark.slow
def test_a_child_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """The process that runs a task is gone, its worker is not; the task runs again in another one."""
    with (
        Fleet("tests.apps.isolated:app", lambda _: cluster.dsn, 1, (*FLAGS, "--children=1")) as fleet,
        psycopg.connect(cluster.dsn, autocommit=True) as connection,
    ):
        fleet.wait_ready()
        begun = tmp_path / "begun"
        payload = json.dumps({"path": str(begun)})
        task = value(connection, "SELECT pgtasks.enqueue('sleeps', %s::jsonb)", payload)
        wait_until(lambda: begun.exists() and begun.read_text(), _READY_S)
        first = begun.read_text()
        KillChild(Target(cluster, fleet, children=True)).strike(Random(1))
        ended = "SELECT outcome FROM pgtasks.attempts WHERE task_id = %s"
        wait_until(lambda: rows(connection, ended, task) == [("worker_lost",)], _READY_S)
        wait_until(lambda: begun.read_text() not in {"", first}, _READY_S)
        assert fleet.alive(0)


def states(fleet: Fleet) -> list[str]:
    """Give the states of the living workers' processes."""
    return [state(pid) for pid in fleet.pids()]


def state(pid: int) -> str:
    """Give the letter for the state of a process, none if it is gone; proc(5) has them."""
    fields = read_process(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[0] if fields else ""


def _shifted(fleet: Fleet) -> int:
    """Count the living workers whose clock is shifted."""
    return sum(_VARIABLE in read_process(f"/proc/{pid}/environ") for pid in fleet.pids())
