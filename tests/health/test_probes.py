"""/livez and /readyz of a real worker: what turns them, within which time, and back."""

import json
import time
from pathlib import Path

import psycopg
import pytest

from tests.database import Connection, rows, value, wait_until
from tests.proxy import Proxy
from tests.scraping import free_ports, get
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.pg, pytest.mark.timeout(60)]


def reasons(port: int, path: str) -> list[str]:
    """Return why a probe fails."""
    reply = get(port, path)
    found: list[str] = json.loads(reply.text)["reasons"] if reply.status else ["nobody answers"]
    assert reply.status == (503 if found else 200)
    return found


@pytest.mark.parametrize("how", ["hang", "fail"])
def test_a_claim_loop_that_makes_no_progress_is_seen(
    dsn: str, connection: Connection, tmp_path: Path, how: str
) -> None:
    """Within its bound, while heartbeats go on; and that it goes on again. A claim that fails is no progress."""
    port, hang = free_ports(), tmp_path / "hang"
    flags = ("--metrics-port", str(port), "--safety-poll", "0.5")
    with WorkerProcess("tests.apps.watched:app", dsn, *flags, env={"PGTASKS_TEST_HANG": str(hang)}) as worker:
        worker.wait_ready()
        wait_until(lambda: reasons(port, "/readyz") == [])
        hang.write_text(how)
        wait_until(lambda: reasons(port, "/livez"), 10)
        (reason,) = reasons(port, "/livez")
        assert reason.startswith("the claim loop made no progress for")
        assert reasons(port, "/readyz") == [reason] or "no progress" in reasons(port, "/readyz")[0]
        assert value(connection, "SELECT count(*) FROM pgtasks.worker_stats WHERE alive") == 1
        hang.unlink()
        wait_until(lambda: reasons(port, "/livez") == [], 10)
        worker.terminate()
        assert worker.wait() == 0


def test_a_database_that_is_away_is_seen(dsn: str) -> None:
    """Within the lease; then both probes hold again, without a restart."""
    port = free_ports()
    with (
        Proxy(dsn) as proxy,
        WorkerProcess("examples.hello:app", proxy.dsn, "--metrics-port", str(port), "--lease", "1.5") as worker,
    ):
        worker.wait_output("worker started", 15)
        wait_until(lambda: reasons(port, "/readyz") == [])
        proxy.black_hole()
        gone_at = time.monotonic()
        wait_until(lambda: any("no heartbeat" in reason for reason in reasons(port, "/livez")), 10)
        assert time.monotonic() - gone_at > 0.4
        assert reasons(port, "/readyz")
        assert get(port, "/metrics").status == 200
        proxy.heal()
        wait_until(lambda: reasons(port, "/livez") == [], 15)
        wait_until(lambda: reasons(port, "/readyz") == [], 15)
        assert worker.running


def test_a_worker_that_drains_is_alive_and_not_ready(dsn: str, connection: Connection) -> None:
    """Until its last task has ended."""
    port = free_ports()
    with WorkerProcess("tests.apps.basic:app", dsn, "--metrics-port", str(port)) as worker:
        worker.wait_ready()
        wait_until(lambda: reasons(port, "/readyz") == [])
        rows(connection, "SELECT pgtasks.enqueue('sleep', '{\"seconds\": 3}')")
        wait_until(lambda: rows(connection, "SELECT 1 FROM pgtasks.tasks WHERE state = 'running'"))
        worker.terminate()
        wait_until(lambda: reasons(port, "/readyz") == ["the worker is draining"], 5)
        assert reasons(port, "/livez") == []
        assert worker.wait() == 0


def test_a_schema_that_went_makes_a_worker_not_ready(fresh_database: str) -> None:
    """Somebody downgraded it under the worker."""
    port = free_ports()
    with (
        psycopg.connect(fresh_database, autocommit=True) as connection,
        WorkerProcess("examples.hello:app", fresh_database, "--metrics-port", str(port)) as worker,
    ):
        worker.wait_ready()
        rows(connection, "UPDATE pgtasks.schema_version SET version_num = '0001'")
        wait_until(lambda: any(reason.startswith("schema: ") for reason in reasons(port, "/readyz")), 10)
        assert reasons(port, "/livez") == []
