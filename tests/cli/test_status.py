"""`pgtasks status`: exact for small tables, with every warning, on one screen."""

import pexpect  # type: ignore[import-untyped]  # nobody has written stubs that we depend on
import psycopg
import pytest

from pgtasks.cli.warnings import warnings_of
from pgtasks.store import reading
from pgtasks.store.overview import read_overview
from pgtasks.store.session import connect
from pgtasks.store.sql_files import sql
from tests.cli.conftest import Run, hold
from tests.database import Connection, Server, wait_until
from tests.workers import environment, program

pytestmark = pytest.mark.pg

WORKER = """
INSERT INTO pgtasks.workers (id, name, queues, names, slots, busy, draining, lease_s, version, last_seen_at)
VALUES (%s, %s, %s, %s, 10, %s, %s, 30, '1.0', now() - %s::interval)
"""
ONE, TWO = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"


def add_worker(
    connection: Connection,
    *,
    id: str = ONE,
    name: str = "w1",
    queues: tuple[str, ...] = ("default",),
    names: tuple[str, ...] = ("add",),
    busy: int = 0,
    draining: bool = False,
    silent: str = "0",
) -> None:
    """Insert a worker process."""
    connection.execute(WORKER, (id, name, list(queues), list(names), busy, draining, silent))


def kinds(pgtasks: Run) -> list[str]:
    """Return the kinds of all warnings."""
    return [warning["kind"] for warning in pgtasks("status", "--json").json["warnings"]]


def test_an_empty_database_says_how_to_begin(pgtasks: Run) -> None:
    """And its JSON has all keys."""
    text = pgtasks("status").out
    assert "no queues yet" in text
    assert "pgtasks worker MODULE:APP" in text
    document = pgtasks("status", "--json").json
    assert set(document) == {"queues", "workers", "schedules", "warnings", "totals", "server"}
    assert document["totals"] == {
        "queues": 0, "scheduled": 0, "queued": 0, "running": 0, "retrying": 0, "dead": 0, "estimated": False,
        "completed_last_hour": 0, "completed_last_hour_estimated": False, "oldest_waiting_s": None, "rate_per_s": 0.0,
        "rate_per_s_estimated": False,
    }  # fmt: skip


def test_each_count_is_right(pgtasks: Run, connection: Connection) -> None:
    """Of two queues, and in total."""
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, queue, run_at, attempt) VALUES"
        " ('a', 'default', now() - interval '2 minutes', 0), ('a', 'default', now(), 0),"
        " ('a', 'default', now() + interval '1 hour', 0), ('a', 'default', now(), 1), ('a', 'mails', now(), 0)"
    )
    connection.execute("UPDATE pgtasks.tasks SET state = 'running', lease_id = 1, claimed_at = now() WHERE attempt = 0"
                       " AND queue = 'mails'")  # fmt: skip
    connection.execute(
        "INSERT INTO pgtasks.history (id, created_at, run_at, attempt, priority, status, queue, name, payload,"
        " finished_at) SELECT g, now(), now(), 1, 0, CASE WHEN g = 1 THEN 'cancelled' ELSE 'completed' END, 'default',"
        " 'a', '{}', now() - CASE WHEN g > 40 THEN interval '2 hours' WHEN g > 30 THEN interval '5 minutes'"
        " ELSE interval '1 second' END FROM generate_series(1, 50) g"
    )
    connection.execute(
        "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, attempt, priority, reason, queue, name, payload)"
        " VALUES (1, now(), now(), 1, 0, 'permanent', 'mails', 'a', '{}')"
    )
    document = pgtasks("status", "--json").json
    default, mails = document["queues"]
    assert default["oldest_waiting_s"] == pytest.approx(120, abs=10)
    expected = {
        "queue": "default", "paused_at": None, "scheduled": 1, "queued": 2, "running": 0, "retrying": 1, "dead": 0,
        "estimated": False, "completed_last_hour": 39, "completed_last_hour_estimated": False, "workers": 0,
        "rate_per_s": round(29 / 60, 3), "rate_per_s_estimated": False, "oldest_waiting_s": default["oldest_waiting_s"],
    }  # fmt: skip
    assert default == expected
    assert (mails["running"], mails["dead"], mails["queued"]) == (1, 1, 0)
    assert document["totals"]["running"] == 1
    assert document["totals"]["completed_last_hour"] == 39


def test_workers_are_listed_with_what_they_do(pgtasks: Run, connection: Connection) -> None:
    """Busy, waiting, draining, or silent."""
    add_worker(connection, id=ONE, name="busy")
    hold(connection, ONE, 3)
    add_worker(connection, id=TWO, name="gone", silent="5 minutes")
    add_worker(connection, id=ONE.replace("1", "3"), name="leaving", draining=True, busy=1)
    workers = pgtasks("status", "--json").json["workers"]
    assert [(worker["name"], worker["state"]) for worker in workers] == [
        ("busy", "busy"), ("leaving", "draining"), ("gone", "silent"),
    ]  # fmt: skip
    assert pgtasks("workers", "list", "--json").json["workers"][0]["id"] == ONE
    text = pgtasks("status").out
    assert "3/10" in text
    assert "silent for 5m0" in text


def test_busy_is_what_runs_now_and_not_what_the_last_heartbeat_said(
    pgtasks: Run, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may be ten seconds old. Stuck handlers, which hold no lease, count too; never more than there are slots."""
    add_worker(connection, name="was idle", busy=0)
    add_worker(connection, id=TWO, name="was busy", busy=9)
    hold(connection, ONE, 4)
    hold(connection, ONE, 2)

    def seen() -> list[tuple[int, str]]:
        workers = pgtasks("workers", "list", "--json").json["workers"]
        return [(worker["busy"], worker["state"]) for worker in sorted(workers, key=lambda one: str(one["id"]))]

    assert seen() == [(6, "busy"), (0, "waiting")]
    connection.execute("UPDATE pgtasks.workers SET stuck = 3")
    assert seen() == [(9, "busy"), (3, "busy")]
    hold(connection, ONE, 2)
    assert seen() == [(10, "busy"), (3, "busy")]
    # With more running than may be looked at, nothing better is known.
    monkeypatch.setattr(reading, "HELD_MAX", 8)
    assert seen() == [(0, "waiting"), (9, "busy")]


def test_a_silent_worker_has_nothing_in_flight_but_what_its_leases_hold(pgtasks: Run, connection: Connection) -> None:
    """Its last heartbeat said 20; what was taken back since then is not its any more."""
    add_worker(connection, name="dead", busy=20, silent="5 minutes")
    (worker,) = pgtasks("workers", "list", "--json").json["workers"]
    assert (worker["busy"], worker["alive"], worker["state"]) == (0, False, "silent")
    for command in (["workers", "list"], ["status"]):
        text = pgtasks(*command).out
        assert "20/10" not in text
        assert "  -  silent" in text
    connection.execute(
        "WITH held AS (INSERT INTO pgtasks.tasks (name, state, lease_id, claimed_at)"
        " VALUES ('a', 'running', 77, now()), ('a', 'running', 78, now()) RETURNING id, lease_id)"
        " INSERT INTO pgtasks.leases (id, worker_id, expires_at, task_ids) OVERRIDING SYSTEM VALUE"
        " SELECT 77, %s, now() - interval '1 minute', array_agg(id) FROM held",
        (ONE,),
    )
    (worker,) = pgtasks("status", "--json").json["workers"]
    assert (worker["busy"], worker["alive"]) == (1, False)
    assert "1/10" in pgtasks("workers", "list").out


def test_a_paused_queue_is_a_warning(pgtasks: Run, connection: Connection) -> None:
    """With the command that resumes it, safe to paste into a shell."""
    connection.execute("SELECT pgtasks.pause('a; rm -rf ~')")
    (warning,) = pgtasks("status", "--json").json["warnings"]
    assert warning["kind"] == "paused_queue"
    assert "pgtasks queues resume 'a; rm -rf ~'" in warning["message"]
    assert "(paused)" in pgtasks("status").out


def test_a_queue_that_nobody_serves_is_a_warning(pgtasks: Run, connection: Connection) -> None:
    """Once tasks wait there; a silent worker does not count."""
    connection.execute("INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry) VALUES ('add', 'q', 1, '{}')")
    connection.execute("INSERT INTO pgtasks.tasks (name, queue) VALUES ('add', 'q')")
    add_worker(connection, queues=("q",), silent="5 minutes")
    assert kinds(pgtasks) == ["unserved_queue"]
    add_worker(connection, id=TWO, queues=("q",))
    assert kinds(pgtasks) == []


def test_a_name_that_nobody_knows_is_a_warning(pgtasks: Run, connection: Connection) -> None:
    """Also when only a worker of another queue knows it; one that is not due is none yet."""
    add_worker(connection, names=("add",))
    add_worker(connection, id=TWO, name="other", queues=("other",), names=("odd",))
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, run_at) VALUES ('add', now()), ('odd', now()), ('odd', now()),"
        " ('later', now() + interval '1 hour')"
    )
    (warning,) = pgtasks("status", "--json").json["warnings"]
    assert warning | {"message": ""} == {
        "kind": "unknown_name", "message": "", "queue": "default", "name": "odd", "waiting": 2, "estimated": False,
    }  # fmt: skip
    assert "no worker knows this: odd (2 waiting in queue default)" in pgtasks("status").out


def test_many_warnings_of_a_kind_are_summed_up(pgtasks: Run, connection: Connection) -> None:
    """A screen full of warnings says less than five."""
    add_worker(connection)
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 'odd' || g FROM generate_series(1, 100) g")
    assert kinds(pgtasks) == ["unknown_name"] * 5 + ["more"]


def test_leases_of_a_dead_worker_are_a_warning(pgtasks: Run, connection: Connection) -> None:
    """With the worker, and how much it holds; also when its row is gone."""
    connection.execute("INSERT INTO pgtasks.tasks (id, name, state, attempt, lease_id, claimed_at)"
                       " OVERRIDING SYSTEM VALUE VALUES (1, 'add', 'running', 1, 5, now())")  # fmt: skip
    connection.execute(
        "INSERT INTO pgtasks.leases (id, worker_id, expires_at, task_ids) OVERRIDING SYSTEM VALUE"
        " VALUES (5, %s, now() - interval '1 minute', '{1,2}'), (6, %s, now() + interval '1 minute', '{3}')",
        (ONE, TWO),
    )
    (warning,) = pgtasks("status", "--json").json["warnings"]
    assert (warning["kind"], warning["worker_id"], warning["leases"], warning["tasks"]) == ("expired_leases", ONE, 1, 1)
    add_worker(connection, name="dead-one", silent="2 minutes")
    assert "worker dead-one, last seen 2m0" in pgtasks("status").out


def test_stuck_handlers_are_a_warning(pgtasks: Run, connection: Connection) -> None:
    """It names the worker, how many there are and what to do; those of a silent worker are no news."""
    add_worker(connection, busy=3)
    connection.execute("UPDATE pgtasks.workers SET stuck = 2")
    found = pgtasks("status", "--json").json
    (warning,) = found["warnings"]
    assert (warning["kind"], warning["worker"], warning["stuck"], warning["slots"]) == ("stuck_handlers", "w1", 2, 10)
    assert "w1: 2 handlers" in warning["message"]
    assert 'executor="process"' in warning["message"]
    assert found["workers"][0]["stuck"] == pgtasks("workers", "list", "--json").json["workers"][0]["stuck"] == 2
    assert "busy, 2 stuck" in pgtasks("workers", "list").out
    connection.execute("UPDATE pgtasks.workers SET last_seen_at = now() - interval '1 hour'")
    assert kinds(pgtasks) == []


def test_an_old_transaction_is_a_warning(dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-01: with its pid, age, user, application and state; a prepared one with its name."""
    monkeypatch.setattr("pgtasks.store.overview.OLD_TRANSACTION_S", 0.05)
    options = "-c default_transaction_isolation=repeatable\\ read"
    with psycopg.connect(dsn, application_name="report\x1b", options=options) as holder, connect(dsn, "cli") as ours:
        holder.execute("SELECT 1")
        pid = holder.info.backend_pid

        def found() -> bool:
            overview = read_overview(ours)
            return any(row.pid == pid for row in overview.transactions)

        wait_until(found)
        (warning,) = [one for one in warnings_of(read_overview(ours)) if one.facts.get("pid") == pid]
        assert warning.kind == "old_transaction"
        assert warning.facts["state"] == "idle in transaction"
        assert f"pg_terminate_backend({pid})" in warning.message


def test_rows_in_a_default_partition_are_a_warning(pgtasks: Run, connection: Connection) -> None:
    """Nothing is lost, but retention cannot drop them by the day."""
    connection.execute(
        "INSERT INTO pgtasks.history (id, created_at, run_at, attempt, priority, status, queue, name, payload,"
        " finished_at) VALUES (1, now(), now(), 1, 0, 'completed', 'default', 'a', '{}', '2001-01-01')"
    )
    (warning,) = pgtasks("status", "--json").json["warnings"]
    assert (warning["kind"], warning["table"]) == ("missing_partition", "history")


def test_no_statement_of_status_mentions_a_payload() -> None:
    """P-03: nor a result, nor an error text."""
    forbidden = ("payload", ".result", "traceback", "headers", "t.*", "h.*")
    live = ["queues_read", "tasks_sample", "tasks_count", "tasks_heads", "leases_count", "leases_expired"]
    past = ["dead_letters_count", "history_sample", "history_count", "worker_stats_read", "all_tasks_list"]
    planned = ["schedules_count", "schedules_troubled"]
    watched = ["tasks_running", "history_count_between", "attempts_count_between", "attempts_watch"]
    for name in live + past + planned + watched:
        code = "\n".join(line for line in sql(name).splitlines() if not line.startswith("--"))
        assert not any(word in code for word in forbidden), name


def test_more_queues_than_fit_are_summed_up(pgtasks: Run, connection: Connection) -> None:
    """On the screen those with the most tasks; the totals are about all."""
    connection.execute("INSERT INTO pgtasks.tasks (name, queue) SELECT 'a', 'q' || g FROM generate_series(1, 60) g")
    connection.execute("INSERT INTO pgtasks.tasks (name, queue) VALUES ('a', 'z'), ('a', 'z')")
    out = pgtasks("status").out
    assert "all, and 21 more" in out
    assert "\nz " in out
    document = pgtasks("status", "--json").json
    assert len(document["queues"]) == document["totals"]["queues"] == 61
    assert document["totals"]["queued"] == 62


def test_watching_ends_with_130_and_survives_a_lost_database(dsn: str, server: Server) -> None:
    """On a terminal it draws in place; Ctrl-C is its end."""
    argv = ["status", "--watch", "0.2"]
    env = environment(dsn, "reader", TERM="xterm-256color")
    child = pexpect.spawn(program(), argv, env=env, dimensions=(24, 80), encoding="utf-8", timeout=15)
    child.expect("no queues yet")
    server.alter(dsn, "ALLOW_CONNECTIONS false")
    try:
        child.expect("trying again")
    finally:
        server.alter(dsn, "ALLOW_CONNECTIONS true")
    child.expect("no queues yet")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert "Traceback" not in child.before
