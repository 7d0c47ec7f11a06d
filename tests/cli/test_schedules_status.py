"""What `pgtasks status` says of schedules, and what it warns about."""

from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.database import Connection, rows

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
    assert pgtasks("status", "--json").json["schedules"] == {
        "total": 0, "enabled": 0, "overdue": 0, "problems": 0, "next_fire": None,
    }  # fmt: skip


def test_a_line_says_how_they_do(pgtasks: Run, connection: Connection) -> None:
    """How many, which are paused, and when the next one fires."""
    worker(connection, "{t}")
    insert(connection, "a", next_fire="now() + interval '90 s'")
    insert(connection, "b", next_fire="now() + interval '1 day'")
    insert(connection, "c", enabled="false")
    assert "schedules: 3, 1 paused; the next fires in 1m" in pgtasks("status").out
    assert kinds(pgtasks) == {}


def test_a_flagged_schedule_is_a_warning(pgtasks: Run, connection: Connection) -> None:
    """With the problem and how to change it; it is not called overdue as well."""
    worker(connection, "{t}")
    insert(connection, "odd", problem="'minute: 99'", next_fire="now() - interval '1 hour'")
    found = kinds(pgtasks)
    assert set(found) == {"schedule_problem"}
    assert (found["schedule_problem"]["schedule"], found["schedule_problem"]["problem"]) == ("odd", "minute: 99")
    assert "pgtasks schedules edit odd" in found["schedule_problem"]["message"]
    assert "1 with a problem" in pgtasks("status").out


@pytest.mark.parametrize("column", ["next_fire", "planned_from"])
def test_an_overdue_schedule_is_a_warning(pgtasks: Run, connection: Connection, column: str) -> None:
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
