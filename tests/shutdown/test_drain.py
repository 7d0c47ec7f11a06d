"""--drain works until nothing is due, then exits 0."""

import time
from pathlib import Path

from tests.database import Connection, rows, value
from tests.handlers.conftest import Tasks
from tests.shutdown.conftest import Exit
from tests.workers import WorkerProcess


def test_nothing_to_do_is_done_at_once(tasks: Tasks) -> None:
    """Exit 0, quietly, and the worker is off the list."""
    with tasks.worker("--drain") as worker:
        ended = Exit(worker, time.monotonic())
    assert (ended.code, ended.quiet()) == (0, True)
    assert ended.after_s < 5
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.workers") == 0


def test_it_works_on_several_queues_and_leaves_what_is_later(tasks: Tasks) -> None:
    """Tasks that tasks add are done too; retries and delayed tasks of the future, and other queues, are not."""
    for queue in ("one", "two", "three"):
        for _ in range(30):
            tasks.add("fine", queue=queue)
    tasks.add("adds_more", {"generations": 5, "queue": "two"}, queue="one")
    late = tasks.add("later", {"delay": 3600}, queue="one")
    future = tasks.add("fine", queue="one", run_at="2100-01-01")
    with tasks.worker("--drain", "-q", "one:2", "-q", "two") as worker:
        ended = Exit(worker, time.monotonic())
    assert (ended.code, ended.quiet()) == (0, True), ended.printed
    left = rows(tasks.connection, "SELECT id, queue FROM pgtasks.tasks WHERE queue <> 'three' ORDER BY id")
    assert left == [(late, "one"), (future, "one")]
    assert tasks.status(late) == "retrying"
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.tasks WHERE queue = 'three'") == 30
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.history WHERE name = 'adds_more'") == 6


def test_a_paused_queue_and_unknown_names_do_not_keep_it(tasks: Tasks) -> None:
    """Neither can become due by waiting."""
    tasks.connection.execute("SELECT pgtasks.pause('one')")
    tasks.add("fine", queue="one")
    tasks.add("nobody knows", queue="two")
    done = tasks.add("fine", queue="two")
    with tasks.worker("--drain", "-q", "one", "-q", "two") as worker:
        assert worker.wait() == 0
    assert len(tasks.left()) == 2
    assert tasks.status(done) == "completed"


def test_a_queue_whose_own_slots_are_stuck_is_given_up(tasks: Tasks) -> None:
    """Exit 1, because work that is due stays behind; what has other slots is done."""
    tasks.add("deaf_sync", queue="one")
    behind = [tasks.add("fine", queue="one") for _ in range(3)]
    done = tasks.add("fine", queue="two")
    with tasks.worker("--drain", "-q", "one:1", "-q", "two") as worker:
        ended = Exit(worker, time.monotonic())
    assert ended.code == 1, ended.printed
    assert "drain given up" in ended.printed
    assert 'due="one=3"' in ended.printed
    assert {tasks.status(task_id) for task_id in behind} == {"queued"}
    assert tasks.status(done) == "completed"


def test_stuck_slots_are_no_failure_when_nothing_else_is_due(tasks: Tasks) -> None:
    """The deaf one had its last attempt; nothing stays behind."""
    tasks.add("deaf_sync", queue="one")
    with tasks.worker("--drain", "-q", "one:1") as worker:
        ended = Exit(worker, time.monotonic())
    assert ended.code == 0, ended.printed
    assert "drain given up" not in ended.printed


def test_a_drain_ends_although_no_child_process_starts(connection: Connection, dsn: str, tmp_path: Path) -> None:
    """Exit 1 and a word on what needs one, no attempt charged; all else is done, and it asks in no hurry."""
    (tmp_path / "broken").touch()
    for name, count in (("pid", 3), ("pid_of_worker", 2), ("nobody", 1)):
        connection.execute("INSERT INTO pgtasks.tasks (name) SELECT %s FROM generate_series(1, %s)", (name, count))
    rows(connection, "SELECT pg_stat_reset()")
    with WorkerProcess(
        "tests.apps.isolated:app", dsn, "--drain", env={"PGTASKS_TEST_BROKEN": str(tmp_path / "broken")}
    ) as worker:
        began = time.monotonic()
        worker.wait(60)
        ended = Exit(worker, began)
    assert ended.code == 1, ended.printed
    (said,) = [line for line in ended.printed.splitlines() if "drain given up" in line]
    assert said.endswith('why="child processes do not start" due="default=3"')
    left = rows(connection, "SELECT name, attempt, count(*) FROM pgtasks.tasks GROUP BY 1, 2 ORDER BY 1")
    assert left == [("nobody", 0, 1), ("pid", 0, 3)]
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE name = 'pid_of_worker'") == 2
    commits = value(connection, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    assert commits / ended.after_s < 80, (commits, ended.after_s)


def test_what_a_drain_leaves_behind_is_said_once(tasks: Tasks) -> None:
    """In a paused queue, under names nobody knows here, and a queue that is not there; exit 0 nevertheless."""
    tasks.connection.execute("SELECT pgtasks.pause('one')")
    for _ in range(3):
        tasks.add("fine", queue="one")
    tasks.connection.execute(
        "INSERT INTO pgtasks.tasks (name, queue, priority)"
        " SELECT 'nobody', 'two', n % 2 FROM generate_series(1, 1500) n"
    )
    tasks.add("nobody", queue="two", run_at="2100-01-01")
    with tasks.worker("--drain", "-q", "one", "-q", "two", "-q", "misspelt", "-q", "default") as worker:
        ended = Exit(worker, time.monotonic())
    assert ended.code == 0, ended.printed
    (said,) = [line for line in ended.printed.splitlines() if "drain leaves something behind" in line]
    assert said.endswith('paused="one=3" no_handler="two=1000+" no_such_queue=misspelt')


def test_a_drain_that_leaves_nothing_says_nothing(tasks: Tasks) -> None:
    """Tasks of the future are not left behind."""
    tasks.add("fine")
    tasks.add("fine", run_at="2100-01-01")
    with tasks.worker("--drain") as worker:
        ended = Exit(worker, time.monotonic())
    assert ended.code == 0
    assert "WARN" not in ended.printed
