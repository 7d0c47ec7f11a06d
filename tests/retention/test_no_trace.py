"""Tasks that are told to leave no history leave none, and a lost reply about them is no lost lease."""

from uuid import uuid4

import pytest

from pgtasks import App
from pgtasks.outcome import Completed
from pgtasks.store import statements
from pgtasks.store.session import connect, fetch_all, fetch_one
from tests.cli.conftest import Run, offline
from tests.database import Connection, value, wait_until
from tests.workers import WorkerProcess

__all__ = ["offline"]
pytestmark = pytest.mark.pg


def running(connection: Connection, queue: str = "default") -> tuple[int, int]:
    """Insert a task that runs; return its id and its lease's."""
    row = connection.execute(
        "WITH t AS (SELECT nextval('pgtasks.tasks_id_seq') AS id), l AS (INSERT INTO pgtasks.leases (worker_id,"
        " expires_at, task_ids) SELECT gen_random_uuid(), now() + interval '1 h', ARRAY[t.id] FROM t RETURNING id)"
        " INSERT INTO pgtasks.tasks (id, name, queue, state, attempt, claimed_at, lease_id) OVERRIDING SYSTEM VALUE"
        " SELECT t.id, 'add', %s, 'running', 1, now(), l.id FROM t, l RETURNING id, lease_id",
        (queue,),
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def complete(dsn: str, tasks: list[tuple[int, int]], keeps: list[bool]) -> None:
    """Complete these as a worker does."""
    with connect(dsn, "finish") as connection:
        moved = fetch_one(connection, statements.complete(uuid4(), tasks, [Completed("1")] * len(tasks), [], keeps))
    assert moved is not None
    assert moved.ids is None, "all of them were taken"


def ours(dsn: str, task: tuple[int, int], queue: str, *, traceless: bool) -> bool:
    """Tell whether a completion whose reply was lost is recognised."""
    with connect(dsn, "finish") as connection:
        return bool(fetch_all(connection, statements.recognise([task], traceless=[traceless], queues=[queue])))


def test_a_task_that_keeps_no_result(connection: Connection, dsn: str) -> None:
    """Beside one that does, in one batch."""
    tasks = sorted([running(connection), running(connection)])
    complete(dsn, tasks, [True, False])
    assert value(connection, "SELECT array_agg(id) FROM pgtasks.history") == [tasks[0][0]]
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0
    assert ours(dsn, tasks[1], "default", traceless=True)
    assert not ours(dsn, tasks[1], "default", traceless=False)


def test_a_queue_that_keeps_no_completed_tasks(connection: Connection, dsn: str, offline: Run) -> None:
    """From the next completion on; others keep theirs."""
    busy, other = running(connection, "busy"), running(connection)
    ran = offline("queues", "keep", "busy", "--no-completed", "--json", "--dsn", dsn)
    assert ran.json == {"queue": "busy", "keep_completed": False, "changed": True}
    assert not offline("queues", "keep", "busy", "--no-completed", "--json", "--dsn", dsn).json["changed"]
    complete(dsn, sorted([busy, other]), [])
    assert value(connection, "SELECT array_agg(id) FROM pgtasks.history") == [other[0]]
    assert ours(dsn, busy, "busy", traceless=False)
    assert not ours(dsn, busy, "other", traceless=False)
    assert offline("queues", "keep", "busy", "--dsn", dsn).out == "queue busy keeps no completed tasks\n"
    assert offline("queues", "keep", "busy", "--completed", "--dsn", dsn).out == "queue busy keeps completed tasks\n"
    assert offline("queues", "keep", "other", "--force", "--json", "--dsn", dsn).json["keep_completed"]
    complete(dsn, [again := running(connection, "busy")], [])
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE id = %s", again[0]) == 1


def test_a_queue_that_nobody_knows(dsn: str, offline: Run) -> None:
    """Probably misspelt."""
    assert offline("queues", "keep", "bsuy", "--no-completed", "--dsn", dsn).code == 3
    assert offline("queues", "keep", "bsuy", "--no-completed", "--force", "--dsn", dsn).code == 0


def test_one_that_goes_on_elsewhere_is_no_completion(connection: Connection, dsn: str) -> None:
    """A swept task that waits again is somewhere, so the late completion lost its lease."""
    id, lease = running(connection)
    connection.execute("UPDATE pgtasks.tasks SET state = 'queued', lease_id = NULL, claimed_at = NULL")
    assert not ours(dsn, (id, lease), "default", traceless=True)


def test_the_option_of_a_task(connection: Connection, dsn: str) -> None:
    """With a real worker; a failure leaves its traces all the same."""
    app = App(dsn)
    app.enqueue("forgotten")
    app.enqueue("forgotten", {"fail": True})
    app.enqueue("kept")
    app.close()
    with WorkerProcess("tests.apps.traceless:app", dsn, "--drain") as worker:
        assert worker.wait(20) == 0
        assert "lease lost" not in worker.output()
    wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0)
    assert value(connection, "SELECT array_agg(name) FROM pgtasks.history") == ["kept"]
    assert value(connection, "SELECT array_agg(name) FROM pgtasks.dead_letters") == ["forgotten"]
