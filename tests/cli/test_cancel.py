"""`pgtasks tasks cancel` with filters: in batches, only what waits, and never what somebody holds."""

import psycopg
import pytest

from pgtasks.cli import cancelling as screen
from pgtasks.store import cancelling
from pgtasks.store.cancelling import Filters
from pgtasks.store.session import connect, fetch_all
from tests.cli.conftest import Run
from tests.database import Connection, rows, value

pytestmark = pytest.mark.pg


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches, and several stretches, for a handful of tasks."""
    monkeypatch.setattr(screen, "BATCH_ROWS", 3)
    monkeypatch.setattr(cancelling, "SCAN_ROWS", 4)


def add(connection: Connection) -> None:
    """Insert ten queued, two scheduled, one retrying and two running tasks, and a stranger."""
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, queue, run_at, attempt) SELECT 'a', CASE WHEN g <= 5 THEN 'p' ELSE 'q' END,"
        " now() - interval '1 minute', 0 FROM generate_series(1, 10) g"
    )
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, queue, run_at, attempt) VALUES ('a', 'p', now() + interval '1 hour', 0),"
        " ('a', 'q', now() + interval '1 hour', 0), ('a', 'q', now(), 1), ('stranger', 'p', now(), 0)"
    )
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, queue, state, lease_id, claimed_at, attempt)"
        " VALUES ('a', 'p', 'running', 1, now(), 1), ('a', 'q', 'running', 1, now(), 1)"
    )


def left(connection: Connection) -> list[tuple[str, str, int]]:
    """Return what is left, by name and state."""
    found = rows(connection, "SELECT name, state, count(*) FROM pgtasks.tasks GROUP BY 1, 2 ORDER BY 1, 2")
    return [(name, state, count) for name, state, count in found]


def test_all_waiting_tasks_of_a_name_are_cancelled(pgtasks: Run, connection: Connection) -> None:
    """They are in history as a cancelled task is; running ones and other names are left alone."""
    add(connection)
    ran = pgtasks("tasks", "cancel", "--name", "a", "--yes")
    assert (ran.code, ran.out, ran.err) == (0, "13 cancelled\n", "")
    assert left(connection) == [("a", "running", 2), ("stranger", "queued", 1)]
    assert rows(connection, "SELECT DISTINCT status, error FROM pgtasks.history") == [
        ("cancelled", "cancelled before it ran")
    ]
    again = pgtasks("tasks", "cancel", "--name", "stranger", "--queue", "p", "--yes", "--json")
    assert again.json == {"cancelled": 1, "requested": 0, "skipped": 0}


def test_running_tasks_are_told_to_stop_when_asked_for(pgtasks: Run, connection: Connection) -> None:
    """And nothing else is touched."""
    add(connection)
    ran = pgtasks("tasks", "cancel", "--status", "running", "--queue", "p", "--yes", "--json")
    assert ran.json == {"cancelled": 0, "requested": 1, "skipped": 0}
    asked = "SELECT queue, state FROM pgtasks.tasks WHERE cancel_requested_at IS NOT NULL"
    assert rows(connection, asked) == [("p", "running")]
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 16


def test_filters_combine_and_the_limit_holds(pgtasks: Run, connection: Connection) -> None:
    """The lowest ids go first; a dry run gives the same numbers and does nothing."""
    add(connection)
    first = rows(connection, "SELECT min(id) FROM pgtasks.tasks WHERE queue = 'q'")[0][0]
    filters = ("--queue", "q", "--status", "queued", "--limit", "4")
    dry = pgtasks("tasks", "cancel", *filters, "--dry-run", "--json").json
    assert dry == {
        "dry_run": True, "cancelled": 4, "requested": 0,
        "kinds": [{"queue": "q", "name": "a", "status": "queued", "count": 4}],
    }  # fmt: skip
    assert pgtasks("tasks", "cancel", *filters, "--dry-run").out == "4 would be cancelled\n  4  a in queue q, queued\n"
    assert value(connection, "SELECT count(*) FROM pgtasks.history") == 0
    assert pgtasks("tasks", "cancel", *filters, "--yes", "--json").json["cancelled"] == 4
    assert rows(connection, "SELECT id FROM pgtasks.history ORDER BY id") == [(first + n,) for n in range(4)]
    assert pgtasks("tasks", "cancel", "--status", "scheduled", "--yes", "--json").json["cancelled"] == 2
    assert pgtasks("tasks", "cancel", "--status", "retrying", "--yes", "--json").json["cancelled"] == 1


def test_without_a_terminal_it_needs_a_yes(pgtasks: Run, connection: Connection) -> None:
    """And says how many it would be; where there is nothing to do there is nothing to ask."""
    add(connection)
    ran = pgtasks("tasks", "cancel", "--name", "a")
    assert (ran.code, ran.out) == (2, "")
    assert "this would cancel 13 tasks — add --yes" in ran.err
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 16
    assert pgtasks("tasks", "cancel", "--queue", "p", "--name", "stranger", "--status", "retrying").code == 3


def test_what_somebody_holds_is_skipped_and_said(pgtasks: Run, connection: Connection, dsn: str) -> None:
    """As a claim does that has not committed yet; nobody waits."""
    add(connection)
    with psycopg.connect(dsn) as other:
        other.execute(
            "SELECT id FROM pgtasks.tasks WHERE queue = 'p' AND state = 'queued' ORDER BY id LIMIT 2 FOR UPDATE"
        )
        ran = pgtasks("tasks", "cancel", "--name", "a", "--yes")
        other.rollback()
    assert ran.out.splitlines()[0] == "11 cancelled"
    assert "2 skipped" in ran.out
    assert pgtasks("tasks", "cancel", "--name", "a", "--yes", "--json").json["cancelled"] == 2


def test_an_unknown_queue_or_name_is_3(pgtasks: Run, connection: Connection) -> None:
    """With what was probably meant."""
    add(connection)
    for flags in (["--yes"], ["--dry-run"], []):
        ran = pgtasks("tasks", "cancel", "--queue", "pp", *flags)
        assert ran.code == 3
        assert "there is no queue 'pp'" in ran.err


def test_the_warning_about_unknown_names_names_the_command(pgtasks: Run, connection: Connection) -> None:
    """It can be pasted into a shell as it stands."""
    connection.execute("INSERT INTO pgtasks.tasks (name, queue) VALUES ('it''s', '-q')")
    messages = [warning["message"] for warning in pgtasks("status", "--json").json["warnings"]]
    assert any("""pgtasks tasks cancel --name='it'"'"'s' --queue=-q""" in message for message in messages), messages
    assert pgtasks("tasks", "cancel", "--name=it's", "--queue=-q", "--yes").out == "1 cancelled\n"


@pytest.mark.slow
def test_each_statement_reads_a_bounded_part_of_a_big_table(fresh_database: str) -> None:
    """Through the primary key, whatever the filters find."""
    with psycopg.connect(fresh_database, autocommit=True) as own:
        own.execute("INSERT INTO pgtasks.tasks (name) SELECT 'a' FROM generate_series(1, 50000)")
        own.execute("ANALYZE pgtasks.tasks")
        ((until,),) = rows(own, "SELECT max(id) FROM pgtasks.tasks")
        statement = cancelling.cancel(Filters(name="rare"), after=0, until=until, limit=500)
        text = psycopg.ClientCursor(own).mogrify(statement.sql, statement.params)
        plan = "\n".join(line for (line,) in rows(own, "EXPLAIN " + text))
    assert "tasks_pkey" in plan
    assert "Seq Scan on tasks" not in plan
    with connect(fresh_database, "cli") as connection:
        assert fetch_all(connection, statement)[0].matched == 0
