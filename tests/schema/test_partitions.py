"""Day partitions of history and attempts are made ahead, and a row is never without a place."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.database import Connection, rows, value, wait_until

PARENTS = ("history", "attempts")
NEW = (
    "INSERT INTO pgtasks.history (id, created_at, run_at, finished_at, attempt, priority, status, queue, name, payload)"
    " VALUES (%s, now(), now(), %s, 1, 0, 'completed', 'default', 'add', '{}') RETURNING tableoid::regclass::text"
)


@pytest.fixture
def history(fresh_database: str) -> Iterator[Connection]:
    """A connection to a database without any day partition."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        for (name,) in rows(connection, "SELECT relname FROM pg_class WHERE relispartition AND relname ~ '_[0-9]{8}$'"):
            rows(connection, f"DROP TABLE pgtasks.{name}")
        yield connection


def today(connection: Connection) -> datetime:
    """Return the beginning of the database's day in UTC."""
    moment: datetime = value(connection, "SELECT date_trunc('day', now(), 'UTC')")
    return moment.astimezone(UTC)


def partition(parent: str, day: datetime) -> str:
    """Return the name of a day's partition."""
    return f"{parent}_{day:%Y%m%d}"


def partitions(connection: Connection, parent: str) -> list[str]:
    """Return the names of a table's day partitions."""
    query = (
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = %s::regclass AND c.relname !~ '_default$' ORDER BY 1"
    )
    return [name for (name,) in rows(connection, query, f"pgtasks.{parent}")]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_they_are_made_from_today_on(history: Connection, zone: str) -> None:
    """Days are those of UTC, whatever the caller's time zone is; what is there already is left alone."""
    rows(history, "SELECT set_config('TimeZone', %s, false)", zone)
    assert value(history, "SELECT pgtasks.create_partitions(2)") == 6
    first = today(history)
    for parent in PARENTS:
        expected = [partition(parent, first + timedelta(days=n)) for n in range(3)]
        assert partitions(history, parent) == expected
    assert value(history, "SELECT pgtasks.create_partitions(2)") == 0
    assert value(history, "SELECT pgtasks.create_partitions()") == 2
    end = first + timedelta(days=1)
    assert rows(history, NEW, 1, end - timedelta(microseconds=1)) == [("pgtasks." + partition("history", first),)]
    assert rows(history, NEW, 2, end) == [("pgtasks." + partition("history", end),)]


def test_a_row_without_a_partition_goes_to_the_default_one(history: Connection) -> None:
    """A completion never fails because nobody made partitions, nor for an odd clock."""
    for number, day in enumerate(
        (today(history), today(history) + timedelta(days=400), datetime(1970, 1, 1, tzinfo=UTC))
    ):
        assert rows(history, NEW, number, day) == [("pgtasks.history_default",)]


def test_a_day_that_began_in_the_default_partition_stays_there(history: Connection) -> None:
    """The other days are made; nothing is lost, and the rest of that day finds its place too."""
    first = today(history)
    rows(history, NEW, 1, first)
    assert value(history, "SELECT pgtasks.create_partitions(1)") == 3
    assert partitions(history, "history") == [partition("history", first + timedelta(days=1))]
    assert rows(history, NEW, 2, first + timedelta(hours=1)) == [("pgtasks.history_default",)]
    assert value(history, "SELECT count(*) FROM pgtasks.history") == 2


@pytest.mark.parametrize("days", [-1, 0, 100_000])
def test_the_number_of_days_is_bounded(history: Connection, days: int) -> None:
    """Whatever it is, the call ends."""
    made = value(history, "SELECT pgtasks.create_partitions(%s)", days)
    assert made == 2 * (min(days, 366) + 1)


def test_a_partition_looks_like_its_parent(history: Connection) -> None:
    """The indexes that lookups need are there, attached, and the checks as well."""
    value(history, "SELECT pgtasks.create_partitions(0)")
    for parent in PARENTS:
        name = partition(parent, today(history))
        query = "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass"
        assert value(history, query, f"pgtasks.{name}") == value(history, query, f"pgtasks.{parent}")
        orphans = (
            "SELECT count(*) FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE x.indrelid = %s::regclass"
        )
        assert value(history, orphans + " AND NOT c.relispartition", f"pgtasks.{name}") == 0


@pytest.mark.timeout(40)
def test_calls_at_once_make_each_partition_once(history: Connection, fresh_database: str) -> None:
    """Every worker calls it; one does the work, the others leave it alone."""
    made: list[int] = []

    def call() -> None:
        with psycopg.connect(fresh_database, autocommit=True) as connection:
            made.append(value(connection, "SELECT pgtasks.create_partitions(30)"))

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert sum(made) == 62
    assert len(made) == len(callers)


def test_it_never_waits_long_for_a_reader_of_the_default_partition(history: Connection, fresh_database: str) -> None:
    """It gives up after a second, so that completions behind it in the queue go on."""
    with psycopg.connect(fresh_database) as reader, psycopg.connect(fresh_database, autocommit=True) as worker:
        rows(reader, "SELECT count(*) FROM pgtasks.history")
        failed: list[str | None] = []

        def call() -> None:
            try:
                rows(history, "SELECT pgtasks.create_partitions(0)")
            except psycopg.errors.LockNotAvailable as error:
                failed.append(error.sqlstate)

        caller = threading.Thread(target=call)
        caller.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pgtasks.history_default'::regclass"
        wait_until(lambda: failed or value(worker, waiting))
        started = time.monotonic()
        rows(worker, NEW, 1, today(worker))
        took_s = time.monotonic() - started
        caller.join()
    assert failed == ["55P03"]
    assert took_s < 2


def test_completions_go_on_while_partitions_are_made(history: Connection, fresh_database: str) -> None:
    """While today has its partition, making those of the coming days takes no lock that is in the way."""
    value(history, "SELECT pgtasks.create_partitions(0)")
    with psycopg.connect(fresh_database) as maker, psycopg.connect(fresh_database, autocommit=True) as worker:
        assert value(maker, "SELECT pgtasks.create_partitions(3)") == 6
        rows(worker, "SET lock_timeout = '500ms'")
        assert rows(worker, NEW, 1, today(worker)) == [("pgtasks." + partition("history", today(worker)),)]
        maker.commit()
    assert value(history, "SELECT count(*) FROM pgtasks.history") == 1
