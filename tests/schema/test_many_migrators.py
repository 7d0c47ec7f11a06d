"""Any number of migrators at once, and any death of one of them, leave the old or the new schema."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgtasks import schema
from pgtasks.errors import DatabaseError
from tests.database import rows, value, wait_until
from tests.schema import snapshot
from tests.schema.conftest import AddRevision
from tests.schema.migrators import Migrator
from tests.schema.revisions import ALL, HEAD, NEXT, STEPS

SLEEPS = "SELECT pg_sleep(600);"


def expected() -> str:
    """Return the schema as it has to be."""
    return snapshot.PATH.read_text(encoding="utf-8")


def in_the_middle(dsn: str) -> bool:
    """Whether a migrator has come to the sleep that a test put into its migration."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
    with psycopg.connect(dsn, autocommit=True) as connection:
        return bool(value(connection, query))


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_first_migrator_that_was_killed_leaves_nothing(empty_dsn: str, tmp_path: Path, migrations: Path) -> None:
    """X-04: not even the empty schema; the next run starts from there."""
    upgrade = migrations / "versions" / "0001_initial.up.sql"
    text = upgrade.read_text(encoding="utf-8")
    upgrade.write_text(text.replace("CREATE VIEW pgtasks.all_tasks", f"{SLEEPS}\nCREATE VIEW pgtasks.all_tasks"))
    migrator = Migrator(empty_dsn, migrations, tmp_path / "log")
    wait_until(lambda: in_the_middle(empty_dsn), hint=migrator.output)
    migrator.kill()
    wait_until(lambda: not in_the_middle(empty_dsn))
    assert snapshot.describe(empty_dsn) == ""
    upgrade.write_text(text)
    assert schema.migrate(empty_dsn).applied == ALL
    assert snapshot.difference(expected(), snapshot.describe(empty_dsn)) == ""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_later_migrator_that_was_killed_is_healed_by_the_next(
    empty_dsn: str, tmp_path: Path, add_revision: AddRevision
) -> None:
    """The next one need not wait until the server has noticed: it tries until the way is free."""
    schema.migrate(empty_dsn)
    folder = add_revision(f"CREATE TABLE pgtasks.more (id bigint); {SLEEPS}", "DROP TABLE pgtasks.more")
    migrator = Migrator(empty_dsn, folder, tmp_path / "log")
    wait_until(lambda: in_the_middle(empty_dsn), hint=migrator.output)
    migrator.kill()
    assert schema.check(empty_dsn).revision == HEAD
    (folder / "versions" / f"{NEXT}_more.up.sql").write_text("CREATE TABLE pgtasks.more (id bigint)")
    assert schema.migrate(empty_dsn).applied == (NEXT,)
    assert schema.check(empty_dsn).verdict == "current"


def test_a_second_migrator_waits_and_says_for_whom(empty_dsn: str) -> None:
    """It gives up in the end, with the process id of the one that works."""
    said: list[str] = []
    with held_lock(empty_dsn) as pid, pytest.raises(DatabaseError, match=rf"\(pid {pid}\) has been at work for 0\.5 s"):
        schema.migrate(empty_dsn, migrator_wait_s=0.5, on_progress=said.append)
    assert said == [f"waiting for another pgtasks migrate (pid {pid})"]
    assert schema.migrate(empty_dsn).applied == ALL


def test_a_second_migrator_goes_on_when_the_first_is_gone(empty_dsn: str) -> None:
    """The lock of a dead process is free; nobody has to clean up after it."""
    said: list[str] = []
    waiter = threading.Thread(target=schema.migrate, args=(empty_dsn,), kwargs={"on_progress": said.append})
    with held_lock(empty_dsn) as pid:
        waiter.start()
        wait_until(lambda: said)
        with psycopg.connect(empty_dsn, autocommit=True) as connection:
            rows(connection, "SELECT pg_terminate_backend(%s)", pid)
        waiter.join(10)
    assert said[-1] == STEPS[-1]
    assert schema.check(empty_dsn).verdict == "current"


def test_a_waiting_migrator_holds_nothing_back(empty_dsn: str) -> None:
    """Between its looks it has no transaction open, so that index builds and vacuum go on."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgtasks/migrate'"
        " AND datname = current_database() AND backend_xmin IS NOT NULL"
    )
    with held_lock(empty_dsn), psycopg.connect(empty_dsn, autocommit=True) as connection:
        started = time.monotonic()
        waiter = threading.Thread(target=schema.migrate, args=(empty_dsn,))
        waiter.start()
        seen = []
        while time.monotonic() - started < 1:
            seen.append(value(connection, query))
    waiter.join(10)
    assert seen.count(0) > len(seen) * 0.5


@contextmanager
def held_lock(dsn: str) -> Iterator[int]:
    """Hold the lock of a migrator; yields the process id of the holder."""
    connection = psycopg.connect(dsn)
    try:
        rows(connection, "SELECT pg_advisory_xact_lock(hashtextextended('migrate', 7074618))")
        yield connection.info.backend_pid
    finally:
        connection.close()
