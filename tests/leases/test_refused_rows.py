"""One outcome that cannot be written now, or ever, holds up no other."""

from typing import Any, cast

import pytest

from pgtasks.outcome import Cancelled, Completed, Dead, Failure, Outcome, RetryIn
from tests.database import Connection, rows, value
from tests.leases import steps
from tests.leases.writing import Writer


async def test_only_the_row_with_a_bad_result_suffers(dsn: str, connection: Connection) -> None:
    """A result that PostgreSQL refuses is replaced by a note that says why; its neighbours keep theirs."""
    steps.enqueue(connection, 20)
    async with Writer(dsn, connection) as writer:
        tasks = writer.claim(20)
        bad = {tasks[3].id: r'"\u0000"', tasks[11].id: "{", tasks[19].id: '"\ud800"'}
        writer.offer([(task, Completed(bad.get(task.id, "1"))) for task in tasks])
        await writer.until_written()
        assert (writer.completer.written, len(writer.leases)) == (20, 0)
    found = rows(connection, "SELECT id, result, error FROM pgtasks.history WHERE status = 'completed' ORDER BY id")
    assert len(found) == 20
    for task_id, result, error in found:
        assert (result is None) == (task_id in bad)
        assert (error or "").startswith("result not stored: ") == (task_id in bad)
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0


BAD = "a\0b"
PLAIN: dict[str, tuple[Outcome, str]] = {
    "retry": (RetryIn(1e18, steps.FAILURE), "retrying"),
    "dead": (Dead("permanent", Failure("E", BAD, BAD)), "dead"),
    "cancelled": (Cancelled(BAD), "cancelled"),
}


@pytest.mark.parametrize("kind", PLAIN)
async def test_an_outcome_that_does_not_fit_is_written_without_its_values(
    kind: str, dsn: str, connection: Connection
) -> None:
    """What became of the task stays, and the record says why the rest is missing; no attempt is lost to a sweep."""
    outcome, status = PLAIN[kind]
    steps.enqueue(connection, 3)
    async with Writer(dsn, connection) as writer:
        tasks = writer.claim(3)
        writer.offer([(tasks[0], outcome), *((task, Completed("1")) for task in tasks[1:])])
        await writer.until_written()
        assert len(writer.leases) == 0
    assert steps.status(connection, tasks[0].id) == status
    assert "not stored: " in value(connection, "SELECT error FROM pgtasks.attempts")
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'") == 2
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0


async def test_an_outcome_that_is_none_costs_its_own_task_alone(
    dsn: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that came with it are written; its lease stays for the sweep, and the log names the task."""
    steps.enqueue(connection, 5)
    async with Writer(dsn, connection) as writer:
        tasks = writer.claim(5)
        bad: dict[int, Any] = {tasks[1].id: Completed(cast("str", 5)), tasks[3].id: "Completed"}
        writer.offer([(task, bad.get(task.id, Completed("1"))) for task in tasks])
        await writer.until_written()
        assert (writer.completer.written, writer.failures, len(writer.leases)) == (3, 0, 0)
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'") == 3
    assert value(connection, "SELECT array_agg(id ORDER BY id) FROM pgtasks.tasks") == sorted(bad)
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 1
    named = [vars(record)["pgtasks"]["task_id"] for record in caplog.records if "not understood" in record.getMessage()]
    assert named == sorted(bad)


@pytest.mark.slow
@pytest.mark.timeout(40)
async def test_a_row_that_somebody_locked_waits_alone(
    dsn: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """An open transaction that refers to one running task delays that task's outcome and no other."""
    steps.enqueue(connection, 6)
    # Two seconds instead of five, as a role or a DSN may say.
    async with Writer(f"{dsn}&options=-c%20lock_timeout%3D300ms", connection) as writer:
        tasks = writer.claim(6)
        with steps.connect(dsn) as other, other.transaction():
            rows(other, "SELECT 1 FROM pgtasks.tasks WHERE id = %s FOR KEY SHARE", tasks[2].id)
            writer.offer([(task, Completed("1")) for task in tasks])
            await writer.until(lambda: writer.completer.written == 5)
            steps.enqueue(connection, 2)
            later = writer.claim(2)
            writer.offer([(task, Completed("1")) for task in later])
            await writer.until(lambda: writer.completer.written == 7, 2)
            assert writer.completer.backlog == 1
            assert writer.leases.ids() == [tasks[0].lease_id], "its lease must live on"
        await writer.until_written()
        assert (writer.completer.lost, len(writer.leases)) == (0, 0)
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'") == 8
    assert caplog.text.count("outcomes wait for a lock") == 1
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0


async def test_a_lease_row_that_somebody_locked_delays_no_outcome(dsn: str, connection: Connection) -> None:
    """The last task of a lease is completed; the empty lease is left to the sweep."""
    steps.enqueue(connection, 1)
    async with Writer(dsn, connection) as writer:
        (task,) = writer.claim(1)
        with steps.connect(dsn) as other, other.transaction():
            rows(other, "SELECT 1 FROM pgtasks.leases WHERE id = %s FOR UPDATE", task.lease_id)
            writer.offer([(task, Completed("1"))])
            await writer.until_written(2)
    assert steps.status(connection, task.id) == "completed"
    steps.expire(connection)
    assert (steps.sweep(connection).closed, steps.sweep(connection).leases) == (1, 0)


async def test_an_error_that_concerns_all_rows_drops_none(dsn: str, connection: Connection) -> None:
    """A right that was taken away and given back delays outcomes; none is taken for refused."""
    steps.enqueue(connection, 4)
    rows(connection, "DROP ROLE IF EXISTS finisher")
    rows(connection, "CREATE ROLE finisher LOGIN")
    try:
        rows(connection, "GRANT USAGE ON SCHEMA pgtasks TO finisher")
        rows(connection, "GRANT SELECT, UPDATE, DELETE ON pgtasks.tasks, pgtasks.leases, pgtasks.queues TO finisher")
        async with Writer(dsn.replace("postgres@", "finisher@"), connection) as writer:
            tasks = writer.claim(4)
            writer.offer([(task, Completed("1")) for task in tasks])
            await writer.until(lambda: writer.failures >= 2)
            assert writer.completer.backlog == 4
            rows(connection, "GRANT INSERT ON pgtasks.history TO finisher")
            await writer.until_written()
            assert writer.completer.written == 4
    finally:
        rows(connection, "DROP OWNED BY finisher")
        rows(connection, "DROP ROLE finisher")
    assert value(connection, "SELECT count(*) FROM pgtasks.history") == 4
