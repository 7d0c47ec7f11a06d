"""--drain works until nothing is due, then exits 0."""

import time

from tests.database import rows, value
from tests.handlers.conftest import Tasks
from tests.shutdown.conftest import Exit


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
