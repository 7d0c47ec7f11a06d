"""`pgtasks doctor`: a healthy database passes; each fault is found, with its remedy and exit code 1."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

import psycopg
import pytest

from pgtasks.cli import findings as judged
from pgtasks.cli.findings import Finding
from pgtasks.store import selftest
from pgtasks.store.diagnosis import Diagnosis, HealthRow, IdleRow, ListenerRow, LostRow, PrivilegeRow, SlotRow, TableRow
from pgtasks.store.overview import OLD_TRANSACTION_S, read_overview
from pgtasks.store.session import connect
from tests.access import as_role
from tests.cli.conftest import Run
from tests.cli.hostile import insert_everywhere
from tests.database import Connection, Server, value

WELL = HealthRow(
    version_num=180006, now=datetime(2026, 1, 1, tzinfo=UTC), username="me", in_recovery=False, read_only="off",
    is_pooled=False, sees_others=True, fsync="on", full_page_writes="on", synchronous_commit="on", autovacuum="on",
    track_counts="on", connections_max=100, connections=5, notify_usage=0.0,
)  # fmt: skip
TABLE = TableRow("tasks", 1000, 10, 0, 0, 2**20, 2**20, None, autovacuum_off=False)
QUIET = Diagnosis(
    tables=[TABLE], slots=[], listeners=[], idle=[],
    privileges=PrivilegeRow(may_enqueue=True, may_work=True, is_owner=True),
    partitions_missing=[], lost=LostRow(0, None),
)  # fmt: skip
# The test server runs without fsync, which is one finding on purpose.
EXPECTED = {"durability"}


def open_findings(found: list[Finding]) -> dict[str, Finding]:
    """Return what needs somebody, by check."""
    return {finding.check: finding for finding in found if finding.level in {"warning", "problem"}}


def troubles(pgtasks: Run) -> dict[str, dict[str, Any]]:
    """Run the command and return what needs somebody, by check."""
    ran = pgtasks("doctor", "--json")
    found = {one["check"]: one for one in ran.json["findings"] if one["level"] in {"warning", "problem"}}
    assert ran.code == (1 if found else 0)
    assert ran.json["healthy"] is (not found)
    assert all(one["remedy"] for one in found.values()), "each says what to do"
    return {check: one for check, one in found.items() if check not in EXPECTED}


@pytest.mark.pg
def test_a_healthy_database_passes(pgtasks: Run, connection: Connection) -> None:
    """Exit code 0, and it says what was looked at."""
    assert troubles(pgtasks) == {}
    checks = {one["check"] for one in pgtasks("doctor", "--json").json["findings"]}
    assert {
        "version", "writable", "clock", "durability", "connections", "notify_queue", "autovacuum", "listen",
        "prepared_statements", "schema",
        "privileges", "partitions", "worker_lost", "queues",
    } <= checks  # fmt: skip


@pytest.mark.pg
def test_the_screen_ends_with_a_verdict(pgtasks: Run, connection: Connection) -> None:
    """What needs somebody comes first, with an arrow before its remedy."""
    text = pgtasks("doctor").out
    assert text.startswith("warning ")
    assert "→" in text
    assert "findings need somebody" in text.splitlines()[-1]


@pytest.mark.pg
def test_an_old_transaction_is_named(
    pgtasks: Run, connection: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its pid, and what ends it; here one second counts as old."""
    monkeypatch.setattr("pgtasks.store.overview.OLD_TRANSACTION_S", 0.0)
    assert OLD_TRANSACTION_S <= 600
    with psycopg.connect(dsn) as holder:
        holder.execute("INSERT INTO pgtasks.queues (name) VALUES ('held')")
        found = troubles(pgtasks)["old_transaction"]
        assert found["pid"] == holder.info.backend_pid
        assert f"pg_terminate_backend({holder.info.backend_pid})" in found["remedy"]
        holder.rollback()


@pytest.mark.pg
def test_a_transaction_that_only_read_is_named_too(
    pgtasks: Run, connection: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds back no vacuum, but whatever changes what it has read."""
    monkeypatch.setattr("pgtasks.store.diagnosis.OLD_TRANSACTION_S", 0.0)
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT count(*) FROM pgtasks.queues")
        found = troubles(pgtasks)["old_transaction"]
        assert found["pid"] == holder.info.backend_pid
        assert "wait for its locks" in found["message"]
        holder.rollback()


@pytest.mark.pg
def test_what_status_warns_about_is_found(pgtasks: Run, connection: Connection) -> None:
    """A queue that nobody serves; a pause, which somebody wanted, is only noted."""
    connection.execute("INSERT INTO pgtasks.tasks (name, queue, run_at) VALUES ('a', 'lonely', now() - interval '1 h')")
    connection.execute("INSERT INTO pgtasks.queues (name, paused_at) VALUES ('resting', now())")
    assert set(troubles(pgtasks)) == {"unserved_queue", "unknown_name"}
    levels = {one["check"]: one["level"] for one in pgtasks("doctor", "--json").json["findings"]}
    assert levels["paused_queue"] == "notice"


@pytest.mark.pg
def test_lost_workers_of_the_last_hour(pgtasks: Run, connection: Connection) -> None:
    """With the name that lost the most."""
    connection.execute(
        "INSERT INTO pgtasks.attempts (task_id, attempt, lease_id, outcome, queue, name)"
        " SELECT g, 1, 1, 'worker_lost', 'default', CASE WHEN g < 3 THEN 'bomb' ELSE 'add' END"
        " FROM generate_series(1, 3) g"
    )
    found = troubles(pgtasks)["worker_lost"]
    assert (found["attempts"], found["name"]) == (3, "bomb")


@pytest.mark.pg
def test_a_missing_partition(pgtasks: Run, connection: Connection) -> None:
    """Today's or tomorrow's."""
    name = value(connection, "SELECT 'history_' || to_char((now() AT TIME ZONE 'UTC')::date + 1, 'YYYYMMDD')")
    connection.execute(f"ALTER TABLE pgtasks.history DETACH PARTITION pgtasks.{name}".encode())
    connection.execute(f"ALTER TABLE pgtasks.{name} RENAME TO elsewhere".encode())
    try:
        assert troubles(pgtasks)["partitions"]["partitions"] == [name]
    finally:
        connection.execute("DROP TABLE pgtasks.elsewhere")
        connection.execute("SELECT pgtasks.create_partitions()")


@pytest.mark.pg
def test_a_schema_that_is_missing_or_old(offline: Run, server: Server) -> None:
    """The server is looked at all the same."""
    address = server.create(migrated=False)
    ran = offline("doctor", "--json", "--dsn", address)
    found = {one["check"]: one for one in ran.json["findings"]}
    assert ran.code == 1
    assert found["schema"]["level"] == "problem"
    assert found["schema"]["remedy"] == "pgtasks migrate"
    assert found["version"]["level"] == "ok"
    server.drop(address)


@pytest.mark.pg
def test_a_session_that_hears_nothing(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As through a transaction pooler, where the listening session is another one."""
    assert selftest.hears(dsn, pooler="none")

    class Deaf:
        """A connection whose statements go to another session each."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self._connection = connect(dsn, "cli")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self._connection.close()

        def execute(self, statement: Any) -> None:
            with connect(dsn, "cli") as other:
                other.execute(statement)

        def notifies(self, **options: Any) -> Any:
            return self._connection.notifies(**options)

    monkeypatch.setattr(selftest, "connect", Deaf)
    assert not selftest.hears(dsn, pooler="none", wait_s=0.3)


@pytest.mark.pg
def test_prepared_statements_that_get_lost(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As through a transaction pooler, which gives two clients one server process in turn."""
    assert selftest.prepares(dsn)
    shared = connect(dsn, "cli")
    try:
        monkeypatch.setattr(selftest, "connect", lambda *_: nullcontext(Forgetful(shared)))
        assert not selftest.prepares(dsn)
    finally:
        shared.close()
    assert judged.of_preparing(prepares=False, pooler="none").level == "problem"
    assert judged.of_preparing(prepares=True, pooler="transaction").level == "ok"


class Forgetful:
    """A session whose server process forgets what was prepared, as another one would not know it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, *arguments: Any, **options: Any) -> Any:
        """Run a statement; what it prepared is gone afterwards, and the client does not know."""
        cursor = self._connection.execute(*arguments, **options)
        self._connection.pgconn.exec_(b"DEALLOCATE ALL")
        return cursor


@pytest.mark.pg
def test_hostile_texts_do_not_reach_the_terminal(pgtasks: Run, connection: Connection) -> None:
    """X-02: whatever names and errors hold."""
    insert_everywhere(connection)
    ran = pgtasks("doctor")
    assert ran.code == 1
    assert not set(ran.out) & {"\x1b", "\x07", "\r", "\u202e", "\x9b"}


@pytest.mark.parametrize(
    ("check", "level", "changed"),
    [
        ("version", "problem", {"version_num": 140010}),
        ("writable", "problem", {"in_recovery": True}),
        ("writable", "problem", {"read_only": "on"}),
        ("durability", "warning", {"fsync": "off"}),
        ("durability", "warning", {"synchronous_commit": "off"}),
        ("connections", "warning", {"connections": 90}),
        ("notify_queue", "warning", {"notify_usage": 0.2}),
        ("notify_queue", "problem", {"notify_usage": 0.6}),
        ("autovacuum", "problem", {"autovacuum": "off"}),
        ("autovacuum", "problem", {"track_counts": "off"}),
    ],
)
def test_each_fault_of_a_server(check: str, level: str, changed: dict[str, Any]) -> None:
    """Alone, beside a server that is well otherwise."""
    assert open_findings(list(judged.of_server(WELL, clock_s=0.1))) == {}
    found = open_findings(list(judged.of_server(WELL._replace(**changed), clock_s=0.1)))
    assert [(one.check, one.level) for one in found.values()] == [(check, level)]


@pytest.mark.parametrize(("clock_s", "level"), [(0.5, "ok"), (-5.0, "notice"), (90.0, "warning"), (-7200.0, "warning")])
def test_the_difference_of_the_clocks(clock_s: float, level: str) -> None:
    """A wrong clock here changes nothing about tasks, only about logs."""
    (found,) = (one for one in judged.of_server(WELL, clock_s=clock_s) if one.check == "clock")
    assert (found.level, found.facts["ahead_s"]) == (level, clock_s)


@pytest.mark.parametrize(
    ("hears", "is_pooled", "pooler", "level"),
    [
        (True, False, "none", "ok"),
        (True, True, "none", "ok"),
        (False, True, "none", "warning"),
        (False, False, "none", "warning"),
        (False, True, "transaction", "ok"),
        (True, False, "transaction", "notice"),
    ],
)
def test_what_lies_between(*, hears: bool, is_pooled: bool, pooler: str, level: str) -> None:
    """A pooler that does not pass notifications on has to be told to us."""
    (found,) = judged.of_hearing(hears=hears, is_pooled=is_pooled, pooler=pooler)
    assert found.level == level


@pytest.mark.parametrize("direct", ["same", "other database", "nobody there"])
def test_the_connection_string_for_listen_is_tried(
    pgtasks: Run, dsn: str, empty_dsn: str, monkeypatch: pytest.MonkeyPatch, direct: str
) -> None:
    """Beside a pooler workers listen over it: to the same database it has to lead, or they only poll."""
    addresses = {"same": dsn, "other database": empty_dsn, "nobody there": "postgresql://127.0.0.1:1/none"}
    monkeypatch.setenv("PGTASKS_POOLER", "transaction")
    monkeypatch.setenv("PGTASKS_LISTEN_DSN", as_role(addresses[direct], "reader"))
    monkeypatch.setattr(selftest, "WAIT_S", 0.2)
    found = {one["check"]: one for one in pgtasks("doctor", "--json").json["findings"]}["listen"]
    assert (found["level"], found["hears"]) == (("ok", True) if direct == "same" else ("warning", False))
    assert "PGTASKS_LISTEN_DSN" in found["message"]


@pytest.mark.parametrize(
    ("check", "changed"),
    [
        ("autovacuum", {"tables": [TABLE._replace(autovacuum_off=True)]}),
        ("dead_rows", {"tables": [TABLE._replace(dead_rows=200_000)]}),
        ("index_size", {"tables": [TABLE._replace(index_bytes=2**30)]}),
        ("hot_ratio", {"tables": [TABLE._replace(updates=200_000, hot_updates=1000)]}),
        (
            "replication_slot",
            {"slots": [SlotRow("old", "physical", active=False, transactions_back=5, wal_held="1 GB")]},
        ),
        (
            "replication_slot",
            {"slots": [SlotRow("far", "physical", active=True, transactions_back=10**7, wal_held=None)]},
        ),
        ("stuck_session", {"listeners": [ListenerRow(7, "me", "pgtasks/listen/x", 60.0)]}),
        ("old_transaction", {"idle": [IdleRow(7, 600.0, "me", "psql")]}),
        ("partitions", {"partitions_missing": ["history_20260101"]}),
        ("worker_lost", {"lost": LostRow(3, "bomb")}),
    ],
)
def test_each_fault_of_a_schema(pgtasks_overview: Any, check: str, changed: dict[str, Any]) -> None:
    """Alone, beside tables that are well otherwise."""
    assert open_findings(list(judged.of_schema(QUIET, pgtasks_overview))) == {}
    found = open_findings(list(judged.of_schema(replace(QUIET, **changed), pgtasks_overview)))
    assert set(found) == {check}


@pytest.fixture
def pgtasks_overview(connection: Connection, dsn: str) -> Any:
    """Return what `status` reads of an empty schema."""
    with connect(dsn, "cli") as reader:
        return read_overview(reader)
