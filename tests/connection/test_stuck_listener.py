"""N-03, N-04: a listener that hears nothing more, and a stopped worker that takes no notifications."""

import signal
import time
from collections.abc import Iterator

import psycopg
import pytest

from pgtasks.embedded import FAST_OPTIONS, PrivateServer
from pgtasks.store import listening
from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.cli.conftest import Run
from tests.database import Connection, prepare, rows, value, wait_until
from tests.long import LONG
from tests.proxy import Proxy
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
DONE = "SELECT count(*) FROM pgtasks.history WHERE id = %s AND status = 'completed'"
STUCK = (
    "SELECT backend_xmin IS NOT NULL FROM pg_stat_activity"
    " WHERE application_name LIKE 'pgtasks/listen/%%' AND wait_event = 'ClientWrite'"
)
LISTENERS = "SELECT max(pid) FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/listen/%' HAVING count(*) > 0"
ENQUEUE = "SELECT pgtasks.enqueue('echo', '{\"number\": 1}')"


def run_one(connection: Connection) -> float:
    """Run a task and say how long that took, in seconds."""
    since = time.monotonic()
    task_id = value(connection, ENQUEUE)
    wait_until(lambda: value(connection, DONE, task_id))
    return time.monotonic() - since


async def test_a_listener_in_a_black_hole_costs_latency(
    proxy: Proxy, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-03: no TCP end, no error: the safety poll finds the task, and the session is opened anew and rung."""
    monkeypatch.setattr(listening, "DEADLINE_S", 1.0)
    async with Rig(proxy.dsn, safety_poll_s=1.0) as rig:
        await rig.asleep()
        before = rows(connection, LISTENERS)
        proxy.swallow("listen")
        value(connection, "SELECT pgtasks.enqueue('t')")
        await rig.ran(1, timeout_s=4.0)
        await until(lambda: rows(connection, LISTENERS) not in (before, []) and rig.bell.hears)
        # The old session still holds the bell, so that every producer rings, and the new one hears it.
        value(connection, "SELECT pgtasks.enqueue('t')")
        await rig.ran(2)


@pytest.fixture
def tcp_server() -> Iterator[tuple[PrivateServer, str]]:
    """A server of its own, with a database: notifications are the cluster's, and the workers' network is TCP."""
    with PrivateServer(options=FAST_OPTIONS, tcp=True) as private:
        yield private, prepare(private)


def flood(connection: Connection, megabytes: int) -> None:
    """Notify all listeners of so much."""
    for _ in range(megabytes):
        rows(connection, "SELECT pg_notify('pgtasks', i || repeat('x', 7900)) FROM generate_series(1, 130) i")


@LONG
def test_a_stopped_worker_harms_nobody(tcp_server: tuple[PrivateServer, str], offline: Run) -> None:
    """N-04: others go on, `status` names it, the server ends its session, vacuum works, and it comes back itself."""
    private, dsn = tcp_server
    over_tcp = private.tcp_dsn_for(str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]))
    # Ours is 30 s; what the connection string asks for comes last.
    address = psycopg.conninfo.make_conninfo(over_tcp, options="-c tcp_user_timeout=8000")
    app, flags = "tests.apps.pooled:app", ("--no-scheduler", "--safety-poll=1")
    with (
        psycopg.connect(dsn, autocommit=True) as connection,
        WorkerProcess(app, address, *flags) as stopped,
        WorkerProcess(app, address, *flags) as other,
    ):
        stopped.wait_ready()
        other.wait_ready()
        run_one(connection)
        stopped.signal(signal.SIGSTOP)
        flood(connection, 24)
        wait_until(lambda: rows(connection, STUCK) == [(True,)], 20, hint="no listener is stuck with a snapshot")
        wait_until(lambda: "stuck_listener" in offline("status", "--json", "--dsn", dsn).out)
        task_ids = [value(connection, ENQUEUE) for _ in range(20)]
        wait_until(lambda: all(value(connection, DONE, task_id) for task_id in task_ids), 20)
        wait_until(lambda: rows(connection, STUCK) == [], 40, hint="the server does not end the session")
        wait_until(lambda: value(connection, "SELECT pg_notification_queue_usage()") == 0, 20)
        stopped.signal(signal.SIGCONT)
        stopped.wait_output("listening again", 30)
        assert other.running
        assert run_one(connection) < 10
