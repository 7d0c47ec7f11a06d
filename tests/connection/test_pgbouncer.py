"""D-02: everything works through PgBouncer, and leaves nothing behind in the connections that others get next."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import psycopg
import pytest

from pgtasks import App, schema
from pgtasks.embedded import FAST_OPTIONS, PrivateServer
from pgtasks.store import granting
from tests import access
from tests.apps import pooled
from tests.chaos.pgbouncer import PgBouncer, binary
from tests.cli.conftest import Run
from tests.database import Connection, prepare, rows, value, wait_until
from tests.workers import WorkerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(binary() is None, reason="pgbouncer is not installed (apt-get install pgbouncer)"),
]
POOL_SIZE = 5
TASKS = 5000
POOLED = ("--pooler=transaction", "--lease=2", "--sweep-interval=0.3", "--concurrency=20")
LEFT_BEHIND = (
    "SELECT pg_backend_pid(), (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors),"
    " (SELECT count(*) FROM pg_settings"
    # PgBouncer itself tells the server the name of each client.
    " WHERE source = 'session' AND name <> 'application_name'), (SELECT count(*) FROM pg_listening_channels())"
)
DONE = "SELECT count(*) FROM pgtasks.history WHERE status = 'completed' AND name = ANY(%s)"
Start = Callable[..., WorkerProcess]


class Behind(NamedTuple):
    """A database that PgBouncer can reach, with one role for all that comes through it."""

    dsn: str
    over_tcp: str


@pytest.fixture(scope="module")
def behind() -> Iterator[Behind]:
    """One whose pooled role is of every kind, as one that producers, workers and commands share has to be."""
    with PrivateServer(options=FAST_OPTIONS, tcp=True) as private:
        dsn = prepare(private)
        over_tcp = psycopg.conninfo.conninfo_to_dict(private.tcp_dsn_for())
        kinds = ", ".join(access.ROLES[kind] for kind in granting.KINDS)
        with psycopg.connect(dsn, autocommit=True) as connection:
            rows(connection, f"CREATE ROLE pooled LOGIN PASSWORD '{over_tcp['password']}' IN ROLE {kinds}")
            name = connection.info.dbname
        yield Behind(dsn, psycopg.conninfo.make_conninfo("", **{**over_tcp, "dbname": name, "user": "pooled"}))


@pytest.fixture
def direct(behind: Behind) -> Iterator[Connection]:
    """A connection past PgBouncer, to an emptied database."""
    with psycopg.connect(behind.dsn, autocommit=True) as connection:
        for table in ("tasks", "leases", "workers", "history", "attempts", "schedules", "schedule_fires"):
            rows(connection, f"DELETE FROM pgtasks.{table}")
        yield connection


@pytest.fixture
def bouncer(behind: Behind, direct: Connection) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode with few server connections."""
    with PgBouncer(behind.over_tcp, pool_size=POOL_SIZE) as running:
        yield running


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a worker of the app; all are killed in the end."""
    with ExitStack() as stack:
        yield lambda dsn, *flags: stack.enter_context(WorkerProcess("tests.apps.pooled:app", dsn, *flags))


def left_behind(dsn: str) -> dict[int, tuple[int, ...]]:
    """Give what each server connection of the pool holds, by holding all of them at once."""
    found: dict[int, tuple[int, ...]] = {}
    with ExitStack() as stack:
        for _ in range(POOL_SIZE):
            client = stack.enter_context(psycopg.connect(dsn, prepare_threshold=None))
            ((pid, *counts),) = rows(client, LEFT_BEHIND)
            found[pid] = tuple(counts)
    return found


def test_a_whole_life_in_transaction_mode(
    bouncer: PgBouncer, direct: Connection, start: Start, offline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 tasks, three workers of which one dies: retries, cancellations, cron, heartbeats, sweeps, commands."""
    monkeypatch.setenv("PGTASKS_POOLER", "transaction")
    monkeypatch.setenv("PGTASKS_DSN", bouncer.dsn)
    assert schema.migrate(bouncer.dsn, pooler="transaction").applied == ()
    workers = [start(bouncer.dsn, *POOLED) for _ in range(3)]
    for worker in workers:
        worker.wait_output("worker started")
    app = App()
    app.enqueue_many([pooled.echo.prepare(number) for number in range(TASKS - 300)])
    for number in range(100):
        pooled.parent.enqueue(number)
        pooled.aparent.enqueue(number)
        pooled.flaky.using(unique_key=f"flaky {number}").enqueue()
    held = [pooled.long.enqueue(3.0).id, pooled.long.enqueue(60.0).id, pooled.long.using(delay=600).enqueue(1.0).id]
    wait_until(
        lambda: value(direct, "SELECT count(*) = 2 FROM pgtasks.tasks WHERE name = 'long' AND state = 'running'")
    )
    for task_id in held[1:]:
        assert offline("tasks", "cancel", str(task_id)).code == 0
    victim = value(direct, "SELECT split_part(name, ':', 2)::int FROM pgtasks.workers LIMIT 1")
    doomed = next(worker for worker in workers if worker.pid == victim)
    doomed.kill()
    wait_until(lambda: value(direct, DONE, ["echo", "parent", "aparent"]) == TASKS - 300 + 400, 60)
    wait_until(lambda: value(direct, DONE, ["flaky"]) == 100, 20)
    wait_until(lambda: value(direct, "SELECT count(*) FROM pgtasks.tasks WHERE name <> 'tock'") == 0, 20)
    assert value(direct, "SELECT count(*) FROM pgtasks.history WHERE status = 'cancelled'") == 2
    wait_until(lambda: value(direct, DONE, ["tock"]) >= 3)
    assert value(direct, "SELECT count(*) = count(DISTINCT task_id) FROM pgtasks.schedule_fires")
    assert offline("status").code == 0
    assert value(direct, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    for worker in workers:
        if worker is not doomed:
            worker.terminate()
            assert worker.wait() == 0
            expected = ("task failed", "leases swept")
            said = [line for line in worker.output().splitlines() if not any(text in line for text in expected)]
            assert not [line for line in said if " WARN " in line or " ERROR " in line]
    assert set(left_behind(bouncer.dsn).values()) == {(0, 0, 0, 0)}
    app.close()


def test_workers_outlive_a_restart_of_pgbouncer(bouncer: PgBouncer, direct: Connection, start: Start) -> None:
    """B2: killed and started again; no restart of the worker, no attempt lost."""
    worker = start(bouncer.dsn, *POOLED)
    worker.wait_output("worker started")
    bouncer.kill()
    worker.wait_output("database unavailable")
    bouncer.start()
    since = time.monotonic()
    value(direct, "SELECT pgtasks.enqueue('echo', '{\"number\": 1}')")
    wait_until(lambda: value(direct, DONE, ["echo"]) == 1, hint=worker.output)
    assert time.monotonic() - since < 7
    assert rows(direct, "SELECT * FROM pgtasks.attempts") == []


def test_a_direct_dsn_for_listen_beside_the_pooled_one(
    bouncer: PgBouncer, behind: Behind, direct: Connection, start: Start
) -> None:
    """`--listen-dsn`: it sleeps under a bell of its own, and is woken at once by a task from the pool."""
    flags = ("--pooler=transaction", "--no-scheduler", "--safety-poll=30")
    worker = start(bouncer.dsn, *flags, f"--listen-dsn={access.as_role(behind.dsn, 'worker')}")
    worker.wait_output("worker started")
    bells = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted"
    wait_until(lambda: value(direct, bells) == 1, hint=worker.output)
    listener = "SELECT client_port FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/listen/%'"
    assert rows(direct, listener) == [(-1,)], "it does not listen over the socket, past PgBouncer"
    app = App(bouncer.dsn, pooler="transaction")
    since = time.monotonic()
    app.enqueue("echo", {"number": 1})
    wait_until(lambda: value(direct, DONE, ["echo"]) == 1, hint=worker.output)
    assert time.monotonic() - since < 5
    app.close()
    worker.terminate()
    assert worker.wait() == 0
    assert "notifications do not arrive" not in worker.output()
    assert set(left_behind(bouncer.dsn).values()) == {(0, 0, 0, 0)}


def test_session_mode_needs_no_setting_but_one(behind: Behind, direct: Connection, start: Start) -> None:
    """B2: LISTEN works there, with `pooler` none, where PgBouncer is told to ignore the parameter it does not know."""
    with PgBouncer(behind.over_tcp, pool_size=20, mode="session") as bouncer:
        worker = start(bouncer.dsn, "--no-scheduler", "--safety-poll=30")
        worker.wait_output("worker started")
        bells = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted"
        wait_until(lambda: value(direct, bells) == 1, hint=worker.output)
        value(direct, "SELECT pgtasks.enqueue('echo', '{\"number\": 1}')")
        wait_until(lambda: value(direct, DONE, ["echo"]) == 1, 5, hint=worker.output)
        worker.terminate()
        assert worker.wait() == 0


def test_an_unsuitable_setting_is_named(bouncer: PgBouncer, offline: Run) -> None:
    """Without `pooler` PgBouncer refuses the connection; the message says what to set."""
    ran = offline("status", "--dsn", bouncer.dsn)
    assert ran.code == 4
    assert "PGTASKS_POOLER=transaction" in ran.err
