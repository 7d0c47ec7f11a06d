"""What `pgtasks status` says of schedules, and what it warns about."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pgtasks.store import schedule_reading
from tests.cli.conftest import Run
from tests.database import Connection, rows, value

pytestmark = pytest.mark.pg


def kinds(pgtasks: Run) -> dict[str, Any]:
    """Return the warnings by kind."""
    return {one["kind"]: one for one in pgtasks("status", "--json").json["warnings"]}


def insert(connection: Connection, name: str, **changes: str) -> None:
    """Make a schedule, and then set some columns of it to SQL expressions, as a scheduler does."""
    rows(connection, "INSERT INTO pgtasks.schedules (name, expression, task) VALUES (%s, '@hourly', 't')", name)
    for column, expression in changes.items():
        rows(connection, f"UPDATE pgtasks.schedules SET {column} = {expression} WHERE name = %s", name)


def worker(connection: Connection, names: str) -> None:
    """Make a live worker that knows some names."""
    rows(
        connection,
        "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)"
        " VALUES (gen_random_uuid(), 'w', '{default}', %s, 1, 30, '1')",
        names,
    )


def test_without_schedules_nothing_is_said(pgtasks: Run, connection: Connection) -> None:
    """The keys are there."""
    assert not connection.closed
    assert "schedule" not in pgtasks("status").out
    shown = pgtasks("status", "--json").json["schedules"]
    del shown["last_day"]["since"]
    assert shown == {
        "total": 0, "enabled": 0, "overdue": 0, "problems": 0, "next_fire": None,
        "last_day": {"fired": 0, "missed": 0, "skipped": 0, "late_s": None, "limited": False},
    }  # fmt: skip


def test_a_line_says_how_they_do(pgtasks: Run, connection: Connection) -> None:
    """How many, which are paused, and when the next one fires."""
    worker(connection, "{t}")
    insert(connection, "a", next_fire="now() + interval '90 s'")
    insert(connection, "b", next_fire="now() + interval '1 day'")
    insert(connection, "c", enabled="false")
    assert "schedules: 3, 1 paused; the next fires in 1m" in pgtasks("status").out
    assert "within 24h: 0 fired, 0 missed, 0 skipped\n" in pgtasks("status").out
    assert kinds(pgtasks) == {}


def fires(connection: Connection, outcome: str, ago: str, late: str, **changes: str) -> None:
    """Record a slot as a scheduler does."""
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, fired_at, outcome, task_id, backfilled)"
        " SELECT 's', f, f + %s::interval, %s, CASE WHEN %s = 'fired' THEN 1 END, %s"
        " FROM (SELECT clock_timestamp() - %s::interval AS f) AS slot",
        late,
        outcome,
        outcome,
        changes.get("backfilled", "false"),
        ago,
    )


def test_what_became_of_the_slots_of_a_day(pgtasks: Run, connection: Connection) -> None:
    """Counts, and how late the latest fire was: a catch-up counts, a backfill and what was missed do not."""
    worker(connection, "{t}")
    insert(connection, "s", next_fire="now() + interval '90 s'")
    for minute in range(1, 4):
        fires(connection, "fired", f"{minute} min", f"{minute} ms")
    fires(connection, "fired", "23 h", "2 s")
    fires(connection, "fired", "25 h", "40 s")
    fires(connection, "fired", "20 h", "20 h", backfilled="true")
    fires(connection, "missed", "5 h", "4 h")
    fires(connection, "missed", "4 h", "3 h")
    fires(connection, "skipped_overlap", "3 h", "3 s")
    assert "\nwithin 24h: 5 fired, 2 missed, 1 skipped; at most 2.0s late\n" in pgtasks("status").out
    shown = pgtasks("status", "--json").json["schedules"]["last_day"]
    since = datetime.fromisoformat(shown.pop("since"))
    assert shown == {"fired": 5, "missed": 2, "skipped": 1, "late_s": 2.0, "limited": False}
    assert timedelta(days=1) < datetime.now(UTC) - since < timedelta(days=1, minutes=1)


def test_more_slots_than_are_counted(pgtasks: Run, connection: Connection) -> None:
    """The latest ones, by the index, and since when they are."""
    insert(connection, "s", next_fire="now() + interval '90 s'")
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, fired_at, outcome, task_id)"
        " SELECT 's', f, f, 'fired', 1 FROM generate_series(now() - interval '20000 s', now(), '1 s') AS f",
    )
    rows(connection, "ANALYZE pgtasks.schedule_fires")
    assert "within 2h46m: 10,000 fired" in pgtasks("status").out
    assert pgtasks("status", "--json").json["schedules"]["last_day"]["limited"] is True
    statement = schedule_reading.count_fires(limit=100)
    text = psycopg.ClientCursor(connection).mogrify(statement.sql, statement.params)
    (plan,) = value(connection, "EXPLAIN (ANALYZE, FORMAT JSON) " + text)
    scans = [node for node in nodes(plan["Plan"]) if "Relation Name" in node]
    assert [(node["Index Name"], node["Actual Rows"]) for node in scans] == [("schedule_fires_fire_time", 100)]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give a plan's nodes."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def test_a_flagged_schedule_is_a_warning(pgtasks: Run, connection: Connection) -> None:
    """With the problem and how to change it; it is not called overdue as well."""
    worker(connection, "{t}")
    insert(connection, "odd", problem="'minute: 99'", next_fire="now() - interval '1 hour'")
    found = kinds(pgtasks)
    assert set(found) == {"schedule_problem"}
    assert (found["schedule_problem"]["schedule"], found["schedule_problem"]["problem"]) == ("odd", "minute: 99")
    assert "pgtasks schedules edit odd" in found["schedule_problem"]["message"]
    assert "1 with a problem" in pgtasks("status").out


@pytest.mark.parametrize(
    ("column", "said"),
    [("next_fire", "should have fired 1m1"), ("planned_from", "has waited 1m1")],
)
def test_an_overdue_schedule_is_a_warning(pgtasks: Run, connection: Connection, column: str, said: str) -> None:
    """After a minute, also when nobody has planned it yet; a paused one never is."""
    worker(connection, "{t}")
    insert(connection, "fresh", **{column: "now() - interval '50 s'"})
    insert(connection, "late", **{column: "now() - interval '70 s'"})
    insert(connection, "paused", enabled="false", **{column: "now() - interval '70 s'"})
    found = kinds(pgtasks)
    assert set(found) == {"overdue_schedule"}
    assert found["overdue_schedule"]["schedule"] == "late"
    assert 70 <= found["overdue_schedule"]["overdue_s"] < 100
    assert "pgtasks scheduler" in found["overdue_schedule"]["message"]
    assert f"schedule late {said}" in found["overdue_schedule"]["message"]
    assert pgtasks("status", "--json").json["schedules"]["overdue"] == 1


def test_a_task_that_no_live_worker_knows_is_a_warning(pgtasks: Run, connection: Connection) -> None:
    """While no worker is alive, one that any has registered counts as known."""
    insert(connection, "a", next_fire="now() + interval '1 h'")
    assert kinds(pgtasks)["unknown_schedule_task"]["task"] == "t"
    rows(connection, "INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry) VALUES ('t', 'q', 1, '{}')")
    assert kinds(pgtasks) == {}
    worker(connection, "{other}")
    assert kinds(pgtasks)["unknown_schedule_task"]["schedules"] == ["a"]
    worker(connection, "{t}")
    assert kinds(pgtasks) == {}
    rows(connection, "UPDATE pgtasks.workers SET last_seen_at = now() - interval '10 min' WHERE names = '{t}'")
    assert kinds(pgtasks)["unknown_schedule_task"]["schedules"] == ["a"]


def test_an_unknown_task_is_one_warning(pgtasks: Run, connection: Connection) -> None:
    """However many schedules have it; the first are named, and how many there are."""
    for name in ("e", "d", "c", "b b", "a"):
        insert(connection, name, next_fire="now() + interval '1 h'")
    insert(connection, "f", task="'u'")
    insert(connection, "g", task="'u'")
    insert(connection, "h", task="'v'")
    found = [one for one in pgtasks("status", "--json").json["warnings"] if one["kind"] == "unknown_schedule_task"]
    assert [(one["task"], one["schedules"], one["count"]) for one in found] == [
        ("t", ["a", "b b", "c"], 5),
        ("u", ["f", "g"], 2),
        ("v", ["h"], 1),
    ]
    assert found[0]["message"].startswith("schedules a, b b, c and 2 more enqueue t, which no worker knows")
    assert found[0]["message"].endswith("pause them: pgtasks schedules pause a 'b b' c …")
    assert found[1]["message"].startswith("schedules f, g enqueue u, which")
    assert found[2]["message"].startswith("schedule h enqueues v, which")
    assert found[2]["message"].endswith("pause it: pgtasks schedules pause h")


def test_many_of_a_kind_are_summed_up(pgtasks: Run, connection: Connection) -> None:
    """A full screen says less."""
    worker(connection, "{t}")
    rows(
        connection,
        "INSERT INTO pgtasks.schedules (name, expression, task)"
        " SELECT 's' || n, '@hourly', 't' FROM generate_series(1, 30) n",
    )
    rows(connection, "UPDATE pgtasks.schedules SET problem = 'x'")
    document = pgtasks("status", "--json").json
    assert document["schedules"]["problems"] == 30
    assert len([one for one in document["warnings"] if one["kind"] == "schedule_problem"]) == 5
