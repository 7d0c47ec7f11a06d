"""Each fault of the server really strikes, and is undone."""

import time
from collections.abc import Callable
from random import Random
from typing import Any

import psycopg
import pytest

from pgtasks import schema
from tests.access import as_role
from tests.chaos import disk, pgbouncer
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import striking, target_of
from tests.chaos.nemesis import Fault, Missed, Target
from tests.chaos.nemesis.connections import FULL, ConnectionLimit
from tests.chaos.nemesis.ddl import MigrateUnderLoad
from tests.chaos.nemesis.disk import DiskFull
from tests.chaos.nemesis.failover import Failover
from tests.chaos.nemesis.locks import OldSnapshot, TableLock
from tests.chaos.nemesis.pooler import RestartPooler
from tests.chaos.nemesis.roles import ImpatientRole, ReadOnlyRole, SerializableRole
from tests.chaos.nemesis.server import CrashServer, KillBackend, TerminateSessions
from tests.database import Connection, rows, value, wait_until
from tests.long import LONG

pytestmark = [pytest.mark.pg, pytest.mark.timeout(120)]

_UNTIL_SEEN_S = 60.0


def client(target: Target) -> Connection:
    """Give a session over TCP, as a worker has."""
    return psycopg.connect(as_role(target.cluster.dsn, "worker"), autocommit=True)


def answers(target: Target) -> bool:
    """Say whether a new session takes writes."""
    with client(target) as connection:
        return not value(connection, "SELECT pg_is_in_recovery()")


@pytest.mark.parametrize("kind", [KillBackend, CrashServer, TerminateSessions])
def test_every_session_ends(kind: type[Fault], target: Target) -> None:
    """After the two crashes the server recovers, as its log says; what was committed is there."""
    with target.cluster.admin() as admin:
        admin.execute("CREATE TABLE IF NOT EXISTS public.kept (x int)")
    with client(target) as first, client(target) as second:
        before = value(first, "INSERT INTO public.kept VALUES (1) RETURNING (SELECT count(*) + 1 FROM public.kept)")
        kind(target).strike(Random(1))
        for connection in (first, second):
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
    assert answers(target)
    with client(target) as connection:
        assert value(connection, "SELECT count(*) FROM public.kept") == before
    if kind is not TerminateSessions:
        assert "automatic recovery in progress" in target.cluster.log()
    if kind is KillBackend:
        assert "was terminated by signal 9" in target.cluster.log()


@pytest.mark.parametrize("kind", [KillBackend, TerminateSessions])
def test_without_a_session_there_is_nothing_to_strike(kind: type[Fault], target: Target) -> None:
    """It does not count as an occurrence then, nor as a failure."""
    target.cluster.terminate_all()
    wait_until(lambda: not target.cluster.backends())
    with pytest.raises(Missed):
        kind(target).strike(Random(1))


def test_all_places_are_taken(target: Target) -> None:
    """A new session is refused (53300), one that was there has lost its place; then there is room again."""
    with client(target) as victim:
        with striking(ConnectionLimit(target)) as still:
            said: set[str] = set()
            refused = seen(lambda: any(text in _noted(said, _refusal(target)) for text in FULL), still)
        assert refused, said
        with pytest.raises(psycopg.OperationalError):
            victim.execute("SELECT 1")
    wait_until(lambda: not _refusal(target))


def test_the_table_of_tasks_is_locked(target: Target) -> None:
    """Nobody reads it for two leases."""
    with client(target) as connection:
        connection.execute("SET lock_timeout = '1ms'")
        with striking(TableLock(target)) as still:
            assert seen(lambda: _is_locked(connection), still)
        assert not _is_locked(connection)


def test_a_snapshot_is_held(target: Target) -> None:
    """Its session is idle in its transaction, and holds vacuum back."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'chaos' AND state = 'idle in transaction' AND backend_xmin IS NOT NULL"
    )
    with target.cluster.admin() as connection:
        with striking(OldSnapshot(target)) as still:
            assert seen(lambda: value(connection, query) == 1, still)
        assert value(connection, query) == 0


@pytest.mark.parametrize(
    ("kind", "shown", "struck"),
    [
        (SerializableRole, "default_transaction_isolation", "serializable"),
        (ReadOnlyRole, "default_transaction_read_only", "on"),
        (ImpatientRole, "statement_timeout", "20ms"),
    ],
)
def test_the_roles_defaults_are_changed(kind: type[Fault], shown: str, struck: str, target: Target) -> None:
    """New sessions have them, and old ones have ended, as it begins and as it is over."""
    query = f"SHOW {shown}"
    with client(target) as victim:
        before = value(victim, query)
        with striking(kind(target)) as still:
            assert seen(lambda: _in_new_session(target, query) == struck, still)
        with pytest.raises(psycopg.OperationalError):
            victim.execute("SELECT 1")
    assert _in_new_session(target, query) == before != struck


def test_columns_and_an_index_come_and_go(target: Target) -> None:
    """A dropped column leaves its number; the schema is as it was, and the index is gone."""
    query = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'pgtasks.tasks'::regclass AND attisdropped"
    with client(target) as connection, client(target) as reader:
        before = value(connection, query)
        reader.execute("BEGIN; SELECT count(*) FROM pgtasks.history")
        with striking(MigrateUnderLoad(target)) as still:
            assert seen(lambda: _columns(connection) == 1, still)
            reader.execute("COMMIT")
        assert value(connection, query) == before + 1
        assert _columns(connection) == 0
        assert value(connection, "SELECT to_regclass('pgtasks.chaos_index')") is None
    schema.require(schema.check(target.cluster.dsn))


@LONG
@pytest.mark.slow
def test_the_standby_takes_over_and_gets_a_standby() -> None:
    """Twice, so that each server was both; all that was acknowledged is there, and commits wait for a standby."""
    with Cluster(standby=True) as cluster:
        written = 0
        with psycopg.connect(cluster.workers_dsn, autocommit=True) as first:
            first.execute("CREATE TABLE kept (x int)")
        for _ in range(2):
            port = cluster.port
            with psycopg.connect(cluster.workers_dsn, autocommit=True) as connection:
                for _ in range(100):
                    connection.execute("INSERT INTO kept VALUES (1)")
                written += 100
                Failover(target_of(cluster)).strike(Random(1))
                with pytest.raises(psycopg.OperationalError):
                    connection.execute("SELECT 1")
            assert cluster.port != port
            with psycopg.connect(cluster.workers_dsn, autocommit=True) as connection:
                assert value(connection, "SELECT count(*) FROM kept") == written
                assert rows(connection, "SELECT state, sync_state FROM pg_stat_replication") == [("streaming", "sync")]


@LONG
@pytest.mark.slow
@pytest.mark.skipif(not disk.available(), reason="only root can make a small disk")
@pytest.mark.parametrize("crashes", [False, True])
def test_the_disk_is_full(*, crashes: bool) -> None:
    """A statement fails, or the server crashes; then there is room, and all that was acknowledged is there."""
    seed = next(seed for seed in range(100) if Random(seed).choice((False, True)) is crashes)
    with Cluster(disk_mib=300) as cluster:
        assert cluster.disk is not None
        fault = DiskFull(target_of(cluster))
        with psycopg.connect(cluster.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS x")
            with striking(fault, seed) as still:
                assert seen(lambda: _is_gone(connection) if crashes else _is_full(connection), still)
        assert cluster.disk.free_bytes() > 0
        assert ("automatic recovery in progress" in cluster.log()) is crashes
        with psycopg.connect(cluster.dsn, autocommit=True) as connection:
            assert value(connection, "SELECT count(*) FROM kept") == 1000
            connection.execute("CREATE TABLE more AS SELECT * FROM kept")


@LONG
@pytest.mark.slow
@pytest.mark.skipif(pgbouncer.binary() is None, reason="pgbouncer is not installed")
def test_pgbouncer_is_killed_and_comes_back(cluster: Cluster) -> None:
    """In transaction mode, through which a session setting does not last; its clients lose their connections."""
    with pgbouncer.PgBouncer(cluster.dsn) as pooler:
        fleet = target_of(cluster).fleet
        fault = RestartPooler(Target(cluster, fleet, pgbouncer=pooler, lease_s=0.5))
        with psycopg.connect(pooler.dsn, autocommit=True, prepare_threshold=None) as victim:
            assert value(victim, "SELECT 1") == 1
            fault.strike(Random(1))
            with pytest.raises(psycopg.OperationalError):
                victim.execute("SELECT 1")
        pooler.start()
        with psycopg.connect(pooler.dsn, autocommit=True, prepare_threshold=None) as connection:
            assert value(connection, "SELECT current_database()") == "chaos"


def seen(condition: Callable[[], bool], still: Callable[[], bool]) -> bool:
    """Poll a condition while the fault strikes, and say whether it was ever true."""
    until = time.monotonic() + _UNTIL_SEEN_S
    while still() and time.monotonic() < until:
        try:
            if condition():
                return True
        except psycopg.OperationalError:
            pass  # the fault ends sessions
        _wait_a_moment()
    return False


def _wait_a_moment() -> None:
    time.sleep(0.005)  # the fault gets its turn


def _noted(said: set[str], refusal: str) -> str:
    said.add(refusal)
    return refusal


def _refusal(target: Target) -> str:
    try:
        client(target).close()
    except psycopg.OperationalError as error:
        return str(error)
    return ""


def _is_locked(connection: Connection) -> bool:
    try:
        connection.execute("SELECT 1 FROM pgtasks.tasks LIMIT 1")
    except psycopg.errors.LockNotAvailable:
        return True
    return False


def _in_new_session(target: Target, query: str) -> Any:
    with client(target) as connection:
        return value(connection, query)


def _columns(connection: Connection) -> int:
    query = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'pgtasks.tasks'::regclass AND attname = 'chaos_note'"
    found: int = value(connection, query)
    return found


def _is_full(connection: Connection) -> bool:
    try:
        connection.execute("CREATE TABLE grown AS SELECT repeat('x', 500) FROM generate_series(1, 100)")
        connection.execute("DROP TABLE grown")
    except psycopg.errors.DiskFull:
        return True
    return False


def _is_gone(connection: Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return True
    return False
