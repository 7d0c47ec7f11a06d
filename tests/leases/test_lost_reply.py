"""N4 of the fault matrix: a request arrives, its reply does not. What was written counts as success."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from pgtasks import App
from pgtasks.errors import DatabaseUnavailable
from pgtasks.outcome import Cancelled, Completed, Dead, Outcome, Released, RetryIn, Snoozed
from tests.database import Connection, rows, value
from tests.leases import steps
from tests.leases.writing import Writer
from tests.proxy import Proxy

OUTCOMES: dict[str, tuple[Outcome, str]] = {
    "completed": (Completed("1"), "completed"),
    "retried": (RetryIn(60.0, steps.FAILURE), "retrying"),
    "buried": (Dead("permanent", steps.FAILURE), "dead"),
    "cancelled": (Cancelled("as asked"), "cancelled"),
    "released": (Released(), "queued"),
    "snoozed": (Snoozed(60.0), "scheduled"),
}


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    """A proxy in front of the test's database."""
    with Proxy(dsn) as running:
        yield running


@pytest.mark.parametrize("kind", OUTCOMES)
async def test_an_outcome_whose_reply_was_lost_is_no_lost_lease(
    kind: str, proxy: Proxy, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch is offered again, found written, and taken off the books: nothing is lost or written twice."""
    outcome, status = OUTCOMES[kind]
    steps.enqueue(connection, 3)
    async with Writer(proxy.dsn, connection) as writer:
        tasks = writer.claim(3)
        await writer.connect()
        proxy.lose_reply("finish")
        writer.offer([(task, outcome) for task in tasks])
        await writer.until_written()
        assert proxy.lost_replies == 1
        assert (writer.completer.lost, writer.completer.written, len(writer.leases)) == (0, 3, 0)
    assert [steps.status(connection, task.id) for task in tasks] == [status] * 3
    assert "lease lost" not in caplog.text
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0
    ended = value(connection, "SELECT count(*) FROM pgtasks.attempts")
    assert ended == (3 if kind in {"retried", "buried", "cancelled"} else 0)


async def test_an_outcome_that_never_arrived_is_offered_again(proxy: Proxy, connection: Connection) -> None:
    """The connection ends before the request is sent: the same batch goes in later, in its order."""
    steps.enqueue(connection, 5)
    async with Writer(proxy.dsn, connection) as writer:
        tasks = writer.claim(5)
        await writer.connect()
        proxy.refuse = True
        proxy.cut()
        for task in tasks:
            writer.offer([(task, Completed("1"))])
        await writer.until(lambda: writer.failures >= 2)
        assert writer.completer.backlog == 5
        assert value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'running'") == 5
        proxy.refuse = False
        await writer.until_written()
    assert rows(connection, "SELECT id FROM pgtasks.history ORDER BY finished_at, id") == [(task.id,) for task in tasks]
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0


async def test_a_lease_lost_while_the_reply_was_lost_is_told_from_an_own_write(
    proxy: Proxy, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two tasks one was swept while the database was away: one success, one lost lease, said once."""
    steps.enqueue(connection, 2)
    async with Writer(proxy.dsn, connection) as writer:
        mine, swept = (*writer.claim(1), *writer.claim(1))
        await writer.connect()
        steps.expire(connection, swept.lease_id)
        steps.sweep(connection)
        proxy.lose_reply("finish")
        writer.offer([(mine, Completed("1")), (swept, Completed("1"))])
        await writer.until_written()
        assert (writer.completer.lost, len(writer.leases)) == (1, 0)
    assert steps.status(connection, mine.id) == "completed"
    assert steps.status(connection, swept.id) == "retrying"
    assert caplog.text.count("lease lost") == 1


async def test_a_cancelled_sweep_is_not_taken_for_an_own_write(proxy: Proxy, connection: Connection) -> None:
    """The sweep finished the task as cancelled, with this lease in history: the result is lost and said to be."""
    (task_id,) = steps.enqueue(connection)
    async with Writer(proxy.dsn, connection) as writer:
        (task,) = writer.claim(1)
        assert value(connection, "SELECT pgtasks.cancel(%s)", task_id) == "requested"
        steps.expire(connection)
        assert steps.sweep(connection).cancelled == 1
        writer.offer([(task, Completed("1"))])
        await writer.until_written()
        assert writer.completer.lost == 1
    assert steps.status(connection, task_id) == "cancelled"


async def test_a_unique_enqueue_whose_reply_was_lost_can_be_repeated(proxy: Proxy, connection: Connection) -> None:
    """The second try returns the task of the first: one task, by its unique key."""
    app = App(dsn=proxy.dsn)

    @app.task(name=steps.NAME)
    async def job() -> None: ...

    await job.using(unique_key="warm-up").aenqueue()
    proxy.lose_reply("client")
    with suppress(DatabaseUnavailable):
        await job.using(unique_key="once").aenqueue()
    assert proxy.lost_replies == 1
    again = await job.using(unique_key="once").aenqueue()
    assert not again.created
    assert rows(connection, "SELECT id FROM pgtasks.tasks WHERE unique_key = 'once'") == [(again.id,)]
