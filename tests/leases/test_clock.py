"""L-06: a worker's wrong clock changes nothing; all times are the database's."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.database import ROOT, Connection, rows, value, wait_until
from tests.leases import steps
from tests.leases.conftest import StartWorker
from tests.trace import Trace

# Imported by every interpreter that finds it: the clock of the whole process is wrong.
SHIFT = """
import datetime, time

def shifted(function, offset):
    return lambda: function() + offset

class Shifted(datetime.datetime):
    __slots__ = ()

    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + datetime.timedelta(seconds=OFFSET)

    @classmethod
    def utcnow(cls):
        return real.utcnow() + datetime.timedelta(seconds=OFFSET)

OFFSET = {offset}
real = datetime.datetime
datetime.datetime = Shifted
time.time = shifted(time.time, OFFSET)
time.time_ns = shifted(time.time_ns, OFFSET * 10**9)
"""
HOURS = (2, -2)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_wrong_clocks_change_nothing(
    connection: Connection, start_worker: StartWorker, trace: Trace, tmp_path: Path
) -> None:
    """Two workers, two hours ahead and behind: due times, leases and retry delays are the database's."""
    lease_s = 1.0
    for hours in HOURS:
        folder = tmp_path / f"clock{hours}"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(SHIFT.format(offset=hours * 3600))
        worker = start_worker("--concurrency=4", lease_s=lease_s, env={"PYTHONPATH": f"{folder}:{ROOT}"})
        worker.wait_output("worker started")
        started = next(line for line in worker.output().splitlines() if "worker started" in line)
        said = datetime.fromisoformat(started.split()[0])
        assert abs((said - datetime.now(UTC)).total_seconds() / 3600 - hours) < 0.1, "the clock is not wrong"
    delayed = value(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 0}', delay => interval '1.5 s')""")
    retried = value(connection, "SELECT pgtasks.enqueue('later')")
    rows(connection, """SELECT pgtasks.enqueue('tick', '{"seconds": 3}') FROM generate_series(1, 6)""")
    wait_until(lambda: len({mark.pid for mark in trace.marks("tick")}) == 2)
    ends = [one for (one,) in rows(connection, "SELECT extract(epoch FROM expires_at - now()) FROM pgtasks.leases")]
    assert all(0 < end <= lease_s for end in ends)
    wait_until(lambda: value(connection, "SELECT count(*) = 8 FROM pgtasks.history WHERE status = 'completed'"), 20)
    late = "SELECT extract(epoch FROM started_at - {})::float FROM pgtasks.history WHERE id = %s"
    assert 0 <= value(connection, late.format("run_at"), delayed) < 1.0
    waited = late.format("(SELECT max(finished_at) FROM pgtasks.attempts WHERE task_id = history.id)")
    assert 1.0 <= value(connection, waited, retried) < 2.0
    assert steps.outcomes(connection, retried) == ["failed"]
    assert value(connection, "SELECT count(*) FROM pgtasks.attempts") == 1, "a live lease was stolen"
    recent = "SELECT bool_and(abs(extract(epoch FROM finished_at - now())) < 60) FROM pgtasks.history"
    assert value(connection, recent)
