"""The fire statement: one fire row and one task per slot, whoever is faster and whatever changes meanwhile."""

import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgtasks.errors import DatabaseError
from pgtasks.firing import Plan, Slot, jitter_s
from pgtasks.store import scheduling, session
from tests.database import Connection, rows, value, wait_until
from tests.schedules.helpers import (
    TASKS,
    add,
    assert_paired,
    connect,
    fire,
    fired,
    make_due,
    outcomes,
    plan_due,
    read_due,
)

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def test_a_slot_becomes_a_task(connection: Connection) -> None:
    """With the payload, the queue and the priority of the schedule, and the slot in its headers."""
    rows(
        connection,
        "INSERT INTO pgtasks.task_types (name, queue, priority, max_attempts, retry)"
        " VALUES ('echo', 'mails', 7, 3, '{}')",
    )
    add(connection, "plain", payload='{"a": 1}')
    add(connection, "own", queue="other", priority=3)
    add(connection, "unknown", task="nobody_knows_it")
    make_due(connection, 1.0)
    plans = plan_due(connection)
    assert fire(connection, plans).fired == 3
    found = rows(
        connection,
        "SELECT headers ->> 'pgtasks.schedule', name, payload, queue, priority, state, unique_key"
        " FROM pgtasks.tasks ORDER BY 1",
    )
    assert found == [
        ("own", "echo", {}, "other", 3, "queued", None),
        ("plain", "echo", {"a": 1}, "mails", 7, "queued", None),
        ("unknown", "nobody_knows_it", {}, "default", 0, "queued", None),
    ]
    assert_paired(connection)
    state = "SELECT count(*) FROM pgtasks.schedules WHERE next_fire > last_fire AND problem IS NULL"
    assert value(connection, state) == 3
    slots = {one.name: one.slots[-1].fire_time for one in plans}
    assert dict(rows(connection, "SELECT name, last_fire FROM pgtasks.schedules")) == slots


def test_it_says_how_late_the_latest_fire_was(connection: Connection) -> None:
    """A catch-up is late; slots that are recorded as missed are not fires, and so not late."""
    add(connection, "s")
    add(connection, "other", "@every 100s", missed="all")
    add(connection, "nobody's", missed="skip")
    assert fire(connection, plan_due(connection)).late_s == 0.0
    make_due(connection, 330.0)
    done = fire(connection, plan_due(connection))
    assert done.fired in {5, 6}
    assert done.missed >= 600
    assert 200.0 < done.late_s < 400.0
    latest = "SELECT extract(epoch FROM max(fired_at - fire_time))::float8 FROM pgtasks.schedule_fires"
    assert done.late_s == value(connection, f"{latest} WHERE outcome = 'fired'")


@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize("first", [0, 1])
def test_two_sessions_fire_the_same_plan(dsn: str, connection: Connection, first: int, locked: object) -> None:
    """At once, in both orders, before and after the commit of the other: one of them does it, nobody waits."""
    add(connection, "s", missed="all")
    make_due(connection, 5.0)
    with connect(dsn) as one, connect(dsn) as other:
        sessions = [one, other][:: 1 if first == 0 else -1]
        plans = [plan_due(each) for each in sessions]
        with sessions[0].transaction():
            done = fire(sessions[0], plans[0], locked=bool(locked))
            assert (done.schedules, done.fired) == (1, len(plans[0][0].slots))
            late = fire(sessions[1], plans[1], locked=bool(locked))
            assert (late.schedules, late.fired, late.busy) == (0, 0, int(bool(locked)))
        late = fire(sessions[1], plans[1], locked=bool(locked))
        assert (late.schedules, late.fired, late.busy) == (0, 0, 0)
    assert value(connection, TASKS, "s") == done.fired >= 5
    assert_paired(connection)


def test_many_sessions_fire_the_same_plans(dsn: str, connection: Connection) -> None:
    """Eight threads, fifty rounds of whatever is due, without asking for locks."""
    for number in range(20):
        add(connection, f"s{number}", missed="all")
    errors: list[Exception] = []

    def work() -> None:
        try:
            with connect(dsn) as mine:
                for _ in range(50):
                    fire(mine, plan_due(mine), locked=False)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    make_due(connection, 20.0)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert_paired(connection)
    assert value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") >= 20 * 19
    assert value(connection, "SELECT count(DISTINCT (schedule, fire_time)) FROM pgtasks.schedule_fires") == value(
        connection, "SELECT count(*) FROM pgtasks.tasks"
    )


CHANGES = {
    "edited": "UPDATE pgtasks.schedules SET expression = '0 18 * * *'",
    "zone changed": "UPDATE pgtasks.schedules SET timezone = 'Asia/Tokyo'",
    "paused": "UPDATE pgtasks.schedules SET enabled = false",
    "paused and resumed": ("UPDATE pgtasks.schedules SET enabled = false; UPDATE pgtasks.schedules SET enabled = true"),
    "removed": "DELETE FROM pgtasks.schedules",
    "renamed": "UPDATE pgtasks.schedules SET name = 'other'",
    "removed and made anew": (
        "DELETE FROM pgtasks.schedules; INSERT INTO pgtasks.schedules (name, expression, task)"
        " VALUES ('s', '@every 1s', 'echo')"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_reading_and_firing_makes_the_plan_void(connection: Connection, change: str) -> None:
    """K-11, K-12: after the change has been committed nothing of the old plan fires."""
    add(connection, "s")
    make_due(connection)
    plans = plan_due(connection)
    connection.execute(CHANGES[change].encode())
    before = rows(connection, "SELECT next_fire FROM pgtasks.schedules")
    assert fire(connection, plans).schedules == 0
    assert outcomes(connection, "s") == []
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0
    assert rows(connection, "SELECT next_fire FROM pgtasks.schedules") == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_under_way_keeps_the_slot_back(dsn: str, connection: Connection, change: str) -> None:
    """The statement waits for nobody: it leaves the schedule alone until the change is committed or not."""
    add(connection, "s")
    make_due(connection)
    plans = plan_due(connection)
    with connect(dsn) as editing:
        with editing.transaction(force_rollback=True):
            editing.execute(CHANGES[change].encode())
            assert fire(connection, plans).schedules == 0
        assert fire(connection, plans).schedules == 1
    assert fired(connection, "s") == 1


def test_an_edit_waits_for_a_fire_and_comes_after_it(dsn: str, connection: Connection) -> None:
    """By commit order: fired by the old plan, then edited."""
    add(connection, "s")
    make_due(connection)
    with connect(dsn) as firing:
        with firing.transaction():
            assert fire(firing, plan_due(firing)).schedules == 1
            edit = threading.Thread(target=_edit, args=(dsn,))
            edit.start()
            wait_until(lambda: value(connection, WAITING))
        edit.join()
    assert fired(connection, "s") == 1
    assert rows(connection, "SELECT expression, next_fire FROM pgtasks.schedules") == [("0 18 * * *", None)]


def _edit(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as editing:
        editing.execute(CHANGES["edited"].encode())


@pytest.mark.parametrize("column", ["payload = '{\"b\": 2}'", "task = 'add'", "queue = 'q'", "priority = 5"])
def test_a_change_of_what_runs_leaves_the_plan_alone(connection: Connection, column: str) -> None:
    """K-11: the next time does not move, and the fire has the new values."""
    add(connection, "s")
    make_due(connection)
    plans = plan_due(connection)
    connection.execute(f"UPDATE pgtasks.schedules SET {column}".encode())
    assert fire(connection, plans).fired == 1
    assert value(connection, f"SELECT count(*) FROM pgtasks.tasks WHERE {column.replace('task =', 'name =')}") == 1


def test_a_slot_with_a_row_is_not_fired(connection: Connection) -> None:
    """Whoever wrote it: a backfill, a person. The purge of the task does not make it look unfired (K-13)."""
    add(connection, "s", missed="all")
    make_due(connection, 4.0)
    (plan,) = plan_due(connection)
    slot = plan.slots[1].fire_time
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, task_id, outcome) VALUES ('s', %s, 1, 'fired')",
        slot,
    )
    assert fire(connection, [plan]).fired == len(plan.slots) - 1
    rows(connection, "DELETE FROM pgtasks.tasks")
    count = len(outcomes(connection, "s"))
    # As after a jump of the clock: the same slots are due again.
    rows(connection, "UPDATE pgtasks.schedules SET next_fire = %s", plan.slots[0].fire_time)
    (again,) = plan_due(connection)
    assert [one.fire_time for one in again.slots][: len(plan.slots)] == [one.fire_time for one in plan.slots]
    assert fire(connection, [again]).fired == len(again.slots) - len(plan.slots)
    assert len(outcomes(connection, "s")) == count + len(again.slots) - len(plan.slots)


def test_a_slot_that_somebody_records_at_the_same_moment(dsn: str, connection: Connection) -> None:
    """The one that comes second is rolled back whole: no task without a fire."""
    add(connection, "s")
    make_due(connection)
    plans = plan_due(connection)
    insert = "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome) VALUES ('s', %s, 'missed')"
    with connect(dsn) as other, connect(dsn) as firing:
        firing.execute("SET lock_timeout = '10s'")
        refused: list[Any] = []

        def late() -> None:
            try:
                fire(firing, plans)
            except DatabaseError as error:
                refused.append(session.constraint_of(error))

        with other.transaction():
            rows(other, insert, plans[0].slots[0].fire_time)
            thread = threading.Thread(target=late)
            thread.start()
            wait_until(lambda: value(connection, WAITING))
        thread.join()
    assert refused == ["schedule_fires_pkey"]
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0
    assert outcomes(connection, "s") == ["missed"]


def test_overlap_skip(connection: Connection) -> None:
    """K-14: while its task lives a slot is recorded as skipped; afterwards the next one fires."""
    add(connection, "s", overlap="skip", missed="all")
    add(connection, "free", missed="all")
    make_due(connection, 3.0)
    done = fire(connection, plan_due(connection))
    assert outcomes(connection, "s") == ["fired", *["skipped_overlap"] * (len(outcomes(connection, "s")) - 1)]
    assert done.skipped == len(outcomes(connection, "s")) - 1 >= 2
    assert "skipped_overlap" not in outcomes(connection, "free")
    assert value(connection, TASKS, "s") == 1
    assert_paired(connection)
    rows(connection, "DELETE FROM pgtasks.tasks WHERE unique_key = 'schedule:s'")
    rows(connection, "UPDATE pgtasks.schedules SET next_fire = next_fire - interval '1 s' WHERE name = 's'")
    before = fired(connection, "s")
    wait_until(lambda: fire(connection, plan_due(connection)).fired)
    wait_until(lambda: fire(connection, plan_due(connection)).schedules == 0)
    assert fired(connection, "s") == before + 1


def test_jitter_is_a_later_start(connection: Connection) -> None:
    """`run_at` is the slot plus its jitter by the database's clock; the slot itself does not move."""
    add(connection, "s", jitter="1 h", missed="all")
    make_due(connection, 5.0)
    (plan,) = plan_due(connection)
    fire(connection, [plan])
    found = rows(
        connection,
        "SELECT f.fire_time, t.run_at FROM pgtasks.schedule_fires f JOIN pgtasks.tasks t ON t.id = f.task_id"
        " ORDER BY 1",
    )
    assert [when for when, _ in found] == [slot.fire_time for slot in plan.slots]
    for when, run_at in found:
        late = timedelta(seconds=jitter_s("s", when, 3600.0))
        assert run_at == pytest.approx(when + late, abs=timedelta(milliseconds=1)) or late < timedelta(seconds=10)


def test_a_late_task_is_due_from_now_on(connection: Connection) -> None:
    """Not in the past, where claims have looked already."""
    add(connection, "s")
    make_due(connection, 3.0)
    fire(connection, plan_due(connection))
    assert value(connection, "SELECT clock_timestamp() - run_at < interval '1 s' FROM pgtasks.tasks")


def test_a_refused_payload_is_refused_whole(connection: Connection) -> None:
    """A CHECK on tasks that one schedule violates leaves nothing of its plan."""
    add(connection, "s", task="bad")
    connection.execute("ALTER TABLE pgtasks.tasks ADD CONSTRAINT no_bad CHECK (name <> 'bad')")
    try:
        make_due(connection)
        with pytest.raises(DatabaseError, match="no_bad"):
            fire(connection, plan_due(connection))
        assert outcomes(connection, "s") == []
    finally:
        connection.execute("ALTER TABLE pgtasks.tasks DROP CONSTRAINT no_bad")


def test_thousands_of_slots_in_one_statement(dsn: str, connection: Connection) -> None:
    """The statement's time grows with its slots, not with their square."""
    for number in range(500):
        add(connection, f"s{number}")
    make_due(connection)
    with connect(dsn) as mine:
        now = read_due(mine)[0].now.replace(microsecond=0)
        slots = tuple(Slot(now - timedelta(seconds=n), "fired") for n in range(10))
        plans = [
            Plan(one.name or "", one.planned_from, None, now + timedelta(hours=1), slots) for one in read_due(mine)
        ]
        began = time.monotonic()
        assert fire(mine, plans).fired == 5000
        took_s = time.monotonic() - began
    assert took_s < 2.0
    assert_paired(connection)


def test_prune_keeps_what_a_catch_up_may_ask_for(connection: Connection) -> None:
    """Old fires go in batches; those before the next fire of a living schedule stay."""
    add(connection, "s", "0 0 1 1 *")
    rows(
        connection,
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome)"
        " SELECT x.name, date_trunc('day', now()) - make_interval(days => d), 'missed'"
        " FROM unnest('{s,gone}'::text[]) AS x (name), generate_series(1, 60) AS d",
    )
    rows(
        connection,
        "UPDATE pgtasks.schedules SET next_fire = date_trunc('day', now()) - interval '10 days'",
    )
    pruned = [session.fetch_one(connection, scheduling.prune_fires(keep_days=30, limit=7)) for _ in range(9)]
    assert sum(count or 0 for count in pruned) == value(connection, "SELECT 120 - count(*) FROM pgtasks.schedule_fires")
    assert pruned[0] == 7
    assert pruned[-1] == 0
    oldest = (
        "SELECT schedule, extract(day FROM max(date_trunc('day', now()) - fire_time))::integer"
        " FROM pgtasks.schedule_fires GROUP BY 1 ORDER BY 1"
    )
    assert rows(connection, oldest) == [("gone", 29), ("s", 40)]


def test_the_last_fire_is_one_that_fired(connection: Connection) -> None:
    """A slot that was skipped for an overlap is none."""
    add(connection, "s", overlap="skip")
    rows(connection, "SELECT pgtasks.enqueue('echo', unique_key => 'schedule:s')")
    make_due(connection)
    assert fire(connection, plan_due(connection)).skipped >= 1
    assert value(connection, "SELECT last_fire FROM pgtasks.schedules") is None
    rows(connection, "DELETE FROM pgtasks.tasks")
    make_due(connection, 0.0)
    time.sleep(1.1)  # until the next slot is due
    assert fire(connection, plan_due(connection)).fired == 1
    last = "SELECT s.last_fire = max(f.fire_time) FILTER (WHERE f.outcome = 'fired') FROM pgtasks.schedules AS s"
    assert value(connection, f"{last}, pgtasks.schedule_fires AS f GROUP BY s.last_fire")
