"""Processes that nobody else sees to: workers that do not end in time, and orphans of a container."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.database import Connection, rows, value, wait_until
from tests.supervisor.conftest import APP, add_ticks, wait_started
from tests.trace import Trace
from tests.workers import environment, start

pytestmark = [pytest.mark.pg, pytest.mark.timeout(60)]
# Patches the supervisor to wait for half a second instead of six, and leaves it a child that it
# never started, as the kernel does with orphans when it is process 1.
LAUNCHER = """
import os, time
from pgtasks.cli import main
from pgtasks.engine import supervisor
supervisor.KILL_AFTER_S = 0.5
if "_PGTASKS_SUPERVISED" not in os.environ:
    pid = os.fork()
    if not pid:
        time.sleep(60)
        os._exit(0)
    print(f"orphan={pid}", flush=True)
main()
"""


def test_late_workers_are_killed_and_orphans_reaped(connection: Connection, dsn: str, trace: Trace) -> None:
    """After grace and a while: SIGKILL, leases given back, exit 1."""
    argv = [sys.executable, "-c", LAUNCHER, "worker", APP, "--processes=2", "--shutdown-grace=0.2"]
    with tempfile.NamedTemporaryFile() as log:

        def output() -> str:
            return Path(log.name).read_text(encoding="utf-8")

        process = start(argv, environment(dsn, "worker", TRACE_FILE=str(trace.path)), log.fileno())
        try:
            wait_until(lambda: output().count("worker started") == 2, 20, hint=output)
            orphan = int(output().partition("orphan=")[2].split()[0])
            os.kill(orphan, signal.SIGKILL)
            wait_until(lambda: not exists(orphan))
            add_ticks(connection, 60, 2)
            wait_started(trace, 2)
            workers = [pid for (pid,) in rows(connection, "SELECT split_part(name, ':', 2)::int FROM pgtasks.workers")]
            for pid in workers:
                os.kill(pid, signal.SIGSTOP)
            process.terminate()
            since = time.monotonic()
            assert process.wait(20) == 1, output()
            assert time.monotonic() - since >= 0.5
        finally:
            process.kill()
            process.wait()
        assert "worker processes killed" in output()
        assert not any(exists(pid) for pid in workers)
    assert rows(connection, "SELECT DISTINCT state, lease_id FROM pgtasks.tasks") == [("queued", None)]
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0


def exists(pid: int) -> bool:
    """Tell whether there is such a process, be it a dead one that nobody has reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
