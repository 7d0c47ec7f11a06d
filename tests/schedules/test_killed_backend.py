"""K-13: the server process dies in the middle of the fire statement: both the fire and its task, or neither."""

import random
import threading
import time

import psycopg
import pytest

from pgtasks.errors import DatabaseUnavailable
from tests.database import Connection, rows, value, wait_until
from tests.long import IS_LONG
from tests.schedules.helpers import add, assert_paired, connect, fire, fired, make_due, outcomes, plan_due

ROUNDS = 200 if IS_LONG else 15
FIRING = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/schedule%' AND state = 'active'"
    " AND wait_event = 'PgSleep'"
)
STOP_AT = """
CREATE OR REPLACE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(30); RETURN NEW; END $$;
CREATE TRIGGER hold {when} INSERT ON pgtasks.{table} FOR EACH {each} EXECUTE FUNCTION public.hold();
"""
# Before and after either insert, and at the end of the statement.
PLACES = [
    ("tasks", "BEFORE", "ROW"),
    ("tasks", "AFTER", "STATEMENT"),
    ("schedule_fires", "BEFORE", "ROW"),
    ("schedule_fires", "AFTER", "ROW"),
]


def attempt(dsn: str, lost: list[str]) -> None:
    """Fire what is due, and note how it ended: a session may be killed while it is made, too."""
    try:
        with connect(dsn) as mine:
            fire(mine, plan_due(mine))
    except (DatabaseUnavailable, psycopg.OperationalError):
        lost.append("lost")
    else:
        lost.append("done")


@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_killed_between_the_inserts(dsn: str, connection: Connection, place: tuple[str, str, str]) -> None:
    """Killed while one insert is done and the other is not, and again: then it fires once."""
    table, when, each = place
    for name in ("a", "b"):
        add(connection, name, "@every 1h", missed="latest")
    make_due(connection, 3600.0)
    connection.execute(STOP_AT.format(table=table, when=when, each=each).encode())
    ends: list[str] = []
    try:
        for _ in range(3):
            thread = threading.Thread(target=attempt, args=(dsn, ends))
            thread.start()
            wait_until(lambda: rows(connection, FIRING))
            rows(connection, f"SELECT pg_terminate_backend(pid, 5000) FROM ({FIRING}) AS f")
            thread.join()
            assert value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") == 0
            assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0
    finally:
        connection.execute(f"DROP TRIGGER hold ON pgtasks.{table}".encode())
    assert ends == ["lost"] * 3
    attempt(dsn, ends)
    assert (fired(connection, "a"), fired(connection, "b")) == (1, 1)
    assert_paired(connection)


def kill_after(connection: Connection, delay_s: float, firing: threading.Thread) -> None:
    """Start a thread that fires, and end its session a moment after that is there."""
    firing.start()
    wait_until(lambda: rows(connection, SESSIONS) or not firing.is_alive(), interval_s=0.001)
    time.sleep(delay_s)  # any moment of the statement is to be hit
    rows(connection, f"SELECT pg_terminate_backend(pid, 5000) FROM ({SESSIONS}) AS s")
    firing.join()


@pytest.mark.timeout(300)
def test_killed_at_any_moment(dsn: str, connection: Connection) -> None:
    """Also before, after, and in the commit, whose reply may be lost; afterwards every slot is there once."""
    rng = random.Random(20)
    for number in range(20):
        add(connection, f"s{number}", "@every 1s", missed="all")
    ends: list[str] = []
    for _ in range(ROUNDS * 10):
        if ends.count("lost") == ROUNDS:
            break
        make_due(connection, 2.0)
        kill_after(connection, rng.random() * 0.02, threading.Thread(target=attempt, args=(dsn, ends)))
        assert_paired(connection)
    assert ends.count("lost") == ROUNDS, "too few were hit"
    before = {f"s{number}": len(outcomes(connection, f"s{number}")) for number in range(20)}
    make_due(connection, 2.0)
    attempt(dsn, ends)
    assert ends[-1] == "done"
    assert all(len(outcomes(connection, name)) >= count for name, count in before.items())
    assert_paired(connection)
    doubled = "SELECT count(*) - count(DISTINCT (headers ->> 'pgtasks.schedule', headers ->> 'pgtasks.fire_time'))"
    assert value(connection, f"{doubled} FROM pgtasks.tasks") == 0


SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/schedule%'"


def test_a_purged_task_leaves_its_slot_fired(dsn: str, connection: Connection) -> None:
    """K-13: neither fired again nor in the way of the next."""
    add(connection, "s", "@every 1s", overlap="skip")
    make_due(connection)
    with psycopg.connect(dsn, autocommit=True) as mine:
        fire(mine, plan_due(mine))
        rows(connection, "DELETE FROM pgtasks.tasks")
        slots = rows(connection, "SELECT fire_time FROM pgtasks.schedule_fires")
        wait_until(lambda: fire(mine, plan_due(mine)).fired)
    assert rows(connection, "SELECT fire_time FROM pgtasks.schedule_fires ORDER BY 1")[: len(slots)] == slots
    assert fired(connection, "s") == 2
