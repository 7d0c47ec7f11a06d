"""L-06: workers whose clocks are an hour off, seen by every library: nothing early, nothing stolen, one fire each."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
HOURS = (-1, 0, 1)


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed (apt-get install libfaketime)")
def test_three_clocks_one_database(connection: Connection, start_worker: StartWorker) -> None:
    """Due times, retry delays, leases and cron fires go by the database's clock."""
    lease_s = 2.0
    for hours in HOURS:
        env = {"LD_PRELOAD": str(LIBRARIES[0]), "FAKETIME": f"{hours:+d}h"} if hours else {}
        worker = start_worker("--concurrency=4", lease_s=lease_s, env=env)
        worker.wait_output("worker started", 30)
        started = next(line for line in worker.output().splitlines() if "worker started" in line)
        off_s = (datetime.fromisoformat(started.split()[0]) - datetime.now(UTC)).total_seconds()
        assert abs(off_s - hours * 3600) < 60, "the clock is not off"
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, task, payload)"
        " VALUES ('each second', '@every 1s', 'tick', '{\"seconds\": 0}')",
    )
    delayed = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 0}', delay => interval '1.5 s')""")
    retried = value(connection, "SELECT pgtasks.enqueue('later')")
    long = [value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 5}')""") for _ in range(9)]
    done = "SELECT count(*) FROM pgtasks.history WHERE id = ANY(%s) AND status = 'completed'"
    wait_until(lambda: value(connection, done, [delayed, retried, *long]) == 11, 30)
    late = "SELECT extract(epoch FROM started_at - {})::float FROM pgtasks.history WHERE id = %s"
    assert 0 <= value(connection, late.format("run_at"), delayed) < 3.0
    waited = late.format("(SELECT max(finished_at) FROM pgtasks.attempts WHERE task_id = history.id)")
    assert 1.0 <= value(connection, waited, retried) < 4.0
    assert steps.outcomes(connection, retried) == ["failed"]
    assert value(connection, "SELECT count(*) FROM pgtasks.attempts") == 1, "a live lease was stolen"
    fires = "SELECT count(*), count(DISTINCT task_id), bool_and(fired_at >= fire_time) FROM pgtasks.schedule_fires"
    ((fired, tasks, on_time),) = rows(connection, f"{fires} WHERE outcome = 'fired'")
    assert fired == tasks >= 4
    assert on_time
