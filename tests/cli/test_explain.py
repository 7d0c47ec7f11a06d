"""`pgtasks tasks explain`: the decisive reason for each state a task can be in, and what to do about it."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.cli.conftest import Run, hold
from tests.database import Connection, value

pytestmark = pytest.mark.pg


def add(connection: Connection, **columns: Any) -> int:
    """Insert a task with these columns and return its id."""
    values = {"name": "add", **columns}
    statement = psycopg.sql.SQL("INSERT INTO pgtasks.tasks ({}) VALUES ({}) RETURNING id").format(
        psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, values)),
        psycopg.sql.SQL(", ").join([psycopg.sql.Placeholder()] * len(values)),
    )
    row = connection.execute(statement, tuple(values.values())).fetchone()
    assert row is not None
    return int(row[0])


def due(connection: Connection, seconds_ago: float = 60) -> Any:
    """Return a moment in the past, by the database's clock."""
    return value(connection, "SELECT clock_timestamp() - make_interval(secs => %s)", seconds_ago)


def add_worker(connection: Connection, **columns: Any) -> str:
    """Insert a live worker of queue default that knows `add`; return its id."""
    id = str(uuid4())
    values = {"id": id, "name": "host:7", "queues": ["default"], "names": ["add"], "slots": 10, "busy": 0,
              "lease_s": 3000, "version": "1", **columns}  # fmt: skip
    connection.execute(
        psycopg.sql.SQL("INSERT INTO pgtasks.workers ({}) VALUES ({})").format(
            psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, values)),
            psycopg.sql.SQL(", ").join([psycopg.sql.Placeholder()] * len(values)),
        ),
        tuple(values.values()),
    )
    return id


def reasons(pgtasks: Run, id: int) -> list[dict[str, Any]]:
    """Return the reasons for a task's state."""
    found: list[dict[str, Any]] = pgtasks("tasks", "explain", str(id), "--json").json["reasons"]
    return found


def kinds(pgtasks: Run, id: int) -> list[str]:
    """Return the kinds of the reasons for a task's state."""
    return [reason["kind"] for reason in reasons(pgtasks, id)]


def test_a_paused_queue(pgtasks: Run, connection: Connection) -> None:
    """With since when, and the command that lets it go on."""
    add_worker(connection)
    id = add(connection, run_at=due(connection))
    connection.execute("INSERT INTO pgtasks.queues (name, paused_at) VALUES ('default', now() - interval '5 minutes')")
    (reason,) = reasons(pgtasks, id)
    assert reason["kind"] == "queue_paused"
    assert "paused for 5m" in reason["message"]
    assert reason["remedy"] == "pgtasks queues resume default"


def test_a_name_that_the_queues_workers_do_not_know(pgtasks: Run, connection: Connection) -> None:
    """And where it is known, if anywhere."""
    add_worker(connection)
    id = add(connection, name="odd", run_at=due(connection))
    (reason,) = reasons(pgtasks, id)
    assert reason["kind"] == "unknown_name"
    assert "no worker has ever registered" in reason["message"]
    add_worker(connection, queues=["mails"], names=["odd"])
    assert "serve: mails" in reasons(pgtasks, id)[0]["message"]


def test_a_queue_that_nobody_serves(pgtasks: Run, connection: Connection) -> None:
    """A worker that was last seen too long ago does not count."""
    id = add(connection, queue="mails", run_at=due(connection))
    add_worker(connection, queues=["mails"], lease_s=1, last_seen_at=due(connection, 60))
    (reason,) = reasons(pgtasks, id)
    assert reason["kind"] == "unserved_queue"
    assert reason["remedy"] == "start one: pgtasks worker MODULE:APP -q mails"


def test_a_task_that_is_not_due_yet(pgtasks: Run, connection: Connection) -> None:
    """With when it is."""
    add_worker(connection)
    id = add(connection, run_at=due(connection, -7200))
    (reason,) = reasons(pgtasks, id)
    assert reason["kind"] == "not_due"
    assert reason["due_in_s"] == pytest.approx(7200, abs=60)
    assert "in 1h59m" in reason["message"] or "in 2h00m" in reason["message"]


def test_a_task_that_waits_for_its_next_attempt(pgtasks: Run, connection: Connection) -> None:
    """With which attempt failed, how, and of how many."""
    add_worker(connection)
    id = add(connection, run_at=due(connection, -60), attempt=2, max_attempts=5)
    connection.execute(
        "INSERT INTO pgtasks.attempts (task_id, attempt, lease_id, outcome, error_class, error, queue, name)"
        " VALUES (%s, 2, 1, 'failed', 'ValueError', 'no such\nuser', 'default', 'add')",
        (id,),
    )
    (reason,) = reasons(pgtasks, id)
    assert reason["kind"] == "waiting_for_retry"
    assert "attempt 2 of 5 did not succeed (failed: ValueError: no such)" in reason["message"]


def test_a_task_that_others_come_before(pgtasks: Run, connection: Connection) -> None:
    """Counted: higher priorities, earlier ones of its own, not what is delayed or what nobody there knows."""
    worker = add_worker(connection, stuck=3)
    hold(connection, worker, 7)
    early, late = due(connection, 120), due(connection, -120)
    for columns in ({"priority": 5}, {"priority": 5, "run_at": late}, {"priority": 5, "name": "odd"}, {}, {}):
        add(connection, **({"run_at": early} | columns))
    id = add(connection, run_at=due(connection))
    add(connection, run_at=due(connection, 30))
    behind, busy = reasons(pgtasks, id)
    assert (behind["kind"], behind["higher_priority"], behind["earlier"]) == ("queued_behind", 1, 2)
    assert "behind 1 of higher priority and 2 of its priority (0) that came earlier" in behind["message"]
    assert (busy["kind"], busy["slots"], busy["busy"]) == ("workers_busy", 10, 10)


def test_a_task_that_runs_elsewhere(pgtasks: Run, connection: Connection) -> None:
    """With where, for how long, and that its lease holds; or that it does not."""
    worker = add_worker(connection)
    lease = value(
        connection,
        "INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids)"
        " VALUES (%s, now() + interval '20 s', '{}') RETURNING id",
        worker,
    )
    id = add(connection, state="running", attempt=2, claimed_at=due(connection, 192), lease_id=lease)
    (reason,) = reasons(pgtasks, id)
    assert (reason["kind"], reason["worker"]) == ("running", "host:7")
    assert "running for 3m1" in reason["message"]
    connection.execute("UPDATE pgtasks.leases SET expires_at = now() - interval '40 s'")
    (reason,) = reasons(pgtasks, id)
    assert reason["kind"] == "lease_expired"
    assert "expired 40s ago" in reason["message"] or "expired 41s ago" in reason["message"]


def test_a_task_that_somebody_locks(pgtasks: Run, connection: Connection, dsn: str) -> None:
    """With the session that does."""
    add_worker(connection)
    id = add(connection, run_at=due(connection))
    with psycopg.connect(dsn) as other:
        other.execute("SELECT 1 FROM pgtasks.tasks WHERE id = %s FOR UPDATE", (id,))
        reason = reasons(pgtasks, id)[0]
        assert (reason["kind"], reason["locked_by"]) == ("locked", other.info.backend_pid)
        other.rollback()
    assert "locked" not in kinds(pgtasks, id)


def test_a_suspect(pgtasks: Run, connection: Connection) -> None:
    """Of which the process was lost."""
    add_worker(connection)
    id = add(connection, run_at=due(connection), attempt=2, losses=2)
    reason = reasons(pgtasks, id)[0]
    assert (reason["kind"], reason["losses"]) == ("quarantine", 2)


def test_workers_that_all_stop(pgtasks: Run, connection: Connection) -> None:
    """They claim nothing more."""
    add_worker(connection, draining=True)
    assert kinds(pgtasks, add(connection, run_at=due(connection))) == ["draining"]


def test_a_unique_key(pgtasks: Run, connection: Connection) -> None:
    """What a living task's key does to others, and what it does to a dead one that is to be replayed."""
    add_worker(connection)
    living = add(connection, unique_key="k", run_at=due(connection, -60))
    assert kinds(pgtasks, living) == ["not_due", "unique_key"]
    connection.execute(
        "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, attempt, priority, reason, queue, name, payload,"
        " unique_key, error_class, error) VALUES (1, now(), now(), 3, 0, 'exhausted', 'default', 'add', '{}', 'k',"
        " 'ValueError', 'no')"
    )
    dead, conflict = reasons(pgtasks, 1)
    assert (dead["kind"], dead["remedy"]) == ("dead", "when its cause is gone: pgtasks dead replay 1")
    assert (conflict["kind"], conflict["held_by"]) == ("unique_conflict", living)


def test_finished_tasks(pgtasks: Run, connection: Connection) -> None:
    """Completed and cancelled ones."""
    for id, status in ((1, "completed"), (2, "cancelled")):
        connection.execute(
            "INSERT INTO pgtasks.history (id, created_at, run_at, attempt, priority, status, queue, name, payload)"
            " VALUES (%s, now(), now(), 1, 0, %s, 'default', 'add', '{}')",
            (id, status),
        )
        assert kinds(pgtasks, id) == [status]


def test_a_task_that_nothing_keeps(pgtasks: Run, connection: Connection) -> None:
    """Due a moment ago, or for longer than it ought to be."""
    add_worker(connection)
    (reason,) = reasons(pgtasks, add(connection))
    assert reason["kind"] == "due"
    (reason,) = reasons(pgtasks, add(connection, run_at=due(connection), queue="default", priority=9))
    assert reason["kind"] == "due"
    assert reason["remedy"] is not None


def test_a_queue_whose_own_slots_are_taken(pgtasks: Run, connection: Connection) -> None:
    """The worker has slots left, though none for this queue; its tasks of other queues do not count."""
    worker = add_worker(connection, queues=["mails", "default"], queue_slots=[None, 2])
    hold(connection, worker, 1)
    id = add(connection, run_at=due(connection))
    assert kinds(pgtasks, id) == ["due"]
    hold(connection, worker, 1)
    (reason,) = reasons(pgtasks, id)
    assert (reason["kind"], reason["queue_slots"], reason["workers"]) == ("queue_slots_taken", 2, 1)
    assert "raise SLOTS in -q default:SLOTS" in reason["remedy"]
    assert kinds(pgtasks, add(connection, queue="mails", run_at=due(connection))) == ["due"]
    add_worker(connection, queue_slots=[None])
    assert kinds(pgtasks, id) == ["due"]


def test_child_processes_that_are_all_taken(pgtasks: Run, connection: Connection) -> None:
    """By isolated tasks; they keep a task waiting that needs a child, as suspects do, and no other."""
    names = ["add", "heavy"]
    worker = add_worker(connection, names=names, isolated=["heavy"], children=1, queue_slots=[None])
    heavy, plain = add(connection, name="heavy", run_at=due(connection)), add(connection, run_at=due(connection))
    hold(connection, worker, 1)
    assert "children_busy" not in kinds(pgtasks, heavy)
    connection.execute("UPDATE pgtasks.tasks SET name = 'heavy' WHERE state = 'running'")
    (reason,) = (reason for reason in reasons(pgtasks, heavy) if reason["kind"] != "queued_behind")
    assert (reason["kind"], reason["children"], reason["workers"]) == ("children_busy", 1, 1)
    assert "children_busy" not in kinds(pgtasks, plain)
    assert "children_busy" in kinds(pgtasks, add(connection, losses=1, run_at=due(connection)))


def test_workers_that_are_full_in_different_ways(pgtasks: Run, connection: Connection) -> None:
    """Each way is told, with how many workers it concerns."""
    full = add_worker(connection, slots=1, queue_slots=[None])
    limited = add_worker(connection, queue_slots=[1])
    for worker in (full, limited):
        hold(connection, worker, 1)
    id = add(connection, run_at=due(connection))
    assert kinds(pgtasks, id) == ["workers_busy", "queue_slots_taken"]
    assert "all slots of a live worker" in reasons(pgtasks, id)[0]["message"]


def test_a_worker_of_an_older_version_has_not_said_its_limits(pgtasks: Run, connection: Connection) -> None:
    """Which the answer says."""
    add_worker(connection)
    id = add(connection, run_at=due(connection))
    assert "a live worker of an older version" in reasons(pgtasks, id)[0]["message"]
    connection.execute("UPDATE pgtasks.workers SET queue_slots = '{}'")
    assert "older version" not in reasons(pgtasks, id)[0]["message"]


def test_a_long_queue_costs_no_more(pgtasks: Run, connection: Connection) -> None:
    """What is not counted whole is said to be a least value."""
    add_worker(connection)
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, run_at) SELECT 'add', now() - interval '1 hour'"
        " FROM generate_series(1, 20050)"
    )
    (reason,) = reasons(pgtasks, add(connection, run_at=due(connection)))
    assert "20,001 or more of its priority" in reason["message"]


def test_what_is_not_there(pgtasks: Run) -> None:
    """Exit code 3, as for `show`."""
    assert pgtasks("tasks", "explain", "12345").code == 3
    assert pgtasks("tasks", "explain", "0").code == 2
