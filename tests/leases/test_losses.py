"""Losses: how many times in a row a task's process was lost, and what ends that."""

import pytest

from pgtasks.engine.attempt import Attempt
from pgtasks.engine.outgoing import BYTES_MAX, batches_of
from pgtasks.errors import ProcessDied
from pgtasks.handlers import handler as describe_handler
from pgtasks.model import Claimed
from pgtasks.outcome import Dead, Outcome, Released, Snoozed
from pgtasks.retry import Retry
from pgtasks.store import session, statements
from tests.database import Connection, rows, value
from tests.leases import steps
from tests.leases.steps import Handle

HANDLER = describe_handler(lambda: None, name=steps.NAME, queue="default", priority=0, retry=Retry(), timeout_s=None)


def _losses(connection: Connection, task_id: int) -> int:
    found: int = value(connection, "SELECT losses FROM pgtasks.tasks WHERE id = %s", task_id)
    return found


def _taken(connection: Connection, losses: int = 0) -> Handle:
    """Enqueue a task that lost its process so many times, and claim it."""
    return Handle.of(_claimed(connection, losses))


def _claimed(connection: Connection, losses: int) -> Claimed:
    """Enqueue a task that lost its process so many times, and claim it."""
    (task_id,) = steps.enqueue(connection, max_attempts=9)
    rows(connection, "UPDATE pgtasks.tasks SET losses = %s WHERE id = %s", losses, task_id)
    worker = steps.worker_id()
    suspects = statements.claim_suspects(
        "default", limit=1, names=[steps.NAME], worker_id=worker, lease_s=steps.LEASE_S
    )
    (task,) = session.fetch_all(connection, suspects) if losses else steps.claim(connection, worker)
    assert task.losses == losses
    return task


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 2), (32767, 32767)])
def test_a_sweep_counts_one_more(connection: Connection, before: int, after: int) -> None:
    """And never more than the column takes."""
    task = _taken(connection, before)
    steps.expire(connection)
    assert steps.sweep(connection).requeued == 1
    assert _losses(connection, task.id) == after


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 2), (32767, 32767)])
def test_a_child_that_died_counts_one_more(connection: Connection, before: int, after: int) -> None:
    """Its own worker says so, at once; that write is recognised when its reply was lost."""
    task = _taken(connection, before)
    assert steps.retry(connection, steps.worker_id(), [task], failure=steps.DIED).ids is None
    assert _losses(connection, task.id) == after
    assert steps.outcomes(connection, task.id) == ["worker_lost"]
    assert steps.recognise(connection, [task]) == {task.id}


def test_what_a_sweep_ended_is_not_taken_for_our_own_write(connection: Connection) -> None:
    """Both are attempts with the outcome worker_lost."""
    task = _taken(connection)
    steps.expire(connection)
    steps.sweep(connection)
    assert steps.recognise(connection, [task]) == set()


def test_any_other_end_clears_them(connection: Connection) -> None:
    """The handler failed by itself: its process lived."""
    task = _taken(connection, 3)
    steps.retry(connection, steps.worker_id(), [task])
    assert _losses(connection, task.id) == 0


@pytest.mark.parametrize("snoozes", [0, 1, 2])
def test_a_release_keeps_them_and_a_snooze_clears_them(connection: Connection, snoozes: int) -> None:
    """What was given back has not ended, so nothing is known; also of two that one statement writes."""
    worker = steps.worker_id()
    tasks = [_claimed(connection, 2), _claimed(connection, 3)]
    outcomes: list[Outcome] = [Snoozed(60.0) if number < snoozes else Released() for number in range(2)]
    attempts = [Attempt(task, HANDLER, "default", 0.0) for task in tasks]
    (batch,) = batches_of(zip(attempts, outcomes, strict=True), BYTES_MAX)
    assert session.fetch_all(connection, batch.statement(worker, [])) == [(None,)]
    assert [_losses(connection, task.id) for task in tasks] == [[2, 3], [0, 3], [0, 0]][snoozes]


def test_whoever_asks_for_it_clears_them(connection: Connection) -> None:
    """Retry of a waiting task, replay of a dead letter, one by one and many, and new values for its unique key."""
    task = _taken(connection, 1)
    steps.retry(connection, steps.worker_id(), [task], failure=steps.DIED, delay_s=60)
    assert value(connection, "SELECT pgtasks.retry(%s)", task.id) == "due"
    assert _losses(connection, task.id) == 0
    for again in ("SELECT pgtasks.retry(%s)", "SELECT pgtasks.retry(id) FROM pgtasks.dead_letters WHERE id = %s"):
        dead = _taken(connection, 2)
        rows(connection, "UPDATE pgtasks.tasks SET max_attempts = 1 WHERE id = %s", dead.id)
        steps.expire(connection, dead.lease_id)
        assert steps.sweep(connection).dead == 1
        assert value(connection, again, dead.id) == "replayed"
        assert _losses(connection, dead.id) == 0
    keyed = value(connection, "SELECT pgtasks.enqueue('job', unique_key => 'k', delay => '1 h')")
    rows(connection, "UPDATE pgtasks.tasks SET losses = 2 WHERE id = %s", keyed)
    assert value(connection, "SELECT pgtasks.enqueue('job', unique_key => 'k', on_conflict => 'replace')") == keyed
    assert _losses(connection, keyed) == 0


def test_the_dead_letter_says_how_its_process_ended(connection: Connection) -> None:
    """Reason, signal, worker and lease."""
    task, worker = _taken(connection, 1), steps.worker_id()
    session.fetch_all(connection, statements.bury(worker, [task], [Dead("worker_lost", steps.DIED)], []))
    assert rows(connection, "SELECT reason, error, error_class, worker_id, lease_id FROM pgtasks.dead_letters") == [
        ("worker_lost", "its process was killed by SIGKILL (9)", "pgtasks.errors.ProcessDied", worker, task.lease_id)
    ]
    assert steps.outcomes(connection, task.id) == ["worker_lost"]
    assert steps.recognise(connection, [task]) == {task.id}


@pytest.mark.parametrize(
    ("returncode", "text"),
    [
        (-9, "its process was killed by SIGKILL (9)"),
        (-11, "its process was killed by SIGSEGV (11)"),
        (-99, "its process was killed by a signal (99)"),
        (7, "its process exited with code 7"),
        (0, "its process exited with code 0"),
        (None, "its process ended"),
    ],
)
def test_the_error_names_signal_or_code(returncode: int | None, text: str) -> None:
    """As `subprocess` reports them; what else is known follows."""
    assert str(ProcessDied.of(returncode)) == text
    assert str(ProcessDied.of(returncode, detail="it used 2 GiB")) == f"{text}; it used 2 GiB"
