"""A row that cannot be changed or deleted, by a foreign key or a trigger of the user's, holds up no other."""

import random
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from pgtasks.engine.heartbeat import SweepWindow
from pgtasks.engine.maintenance import Refused, Sweeper
from pgtasks.outcome import Completed
from pgtasks.store.link import Link
from tests.database import Connection, rows, value
from tests.leases import steps
from tests.leases.writing import Writer

RAISE = """
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF OLD.unique_key = 'bad' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON pgtasks.tasks FOR EACH ROW EXECUTE FUNCTION public.refuse()
"""
OBSTACLES = {
    "foreign key": "CREATE TABLE public.orders (task_id bigint REFERENCES pgtasks.tasks (id))",
    "trigger": RAISE,
}
AWAY = {"foreign key": "TRUNCATE public.orders", "trigger": "DROP TRIGGER refuse ON pgtasks.tasks"}


def hold_fast(connection: Connection, obstacle: str, *task_ids: int) -> None:
    """Make these tasks undeletable."""
    connection.execute(OBSTACLES[obstacle].encode())
    for task_id in task_ids:
        if obstacle == "trigger":
            rows(connection, "UPDATE pgtasks.tasks SET unique_key = 'bad' WHERE id = %s", task_id)
        else:
            rows(connection, "INSERT INTO public.orders VALUES (%s)", task_id)


@pytest.fixture(autouse=True)
def tidy(connection: Connection) -> Iterator[None]:
    """Take the obstacles away: the next test may get the same database."""
    yield
    connection.execute(b"DROP TABLE IF EXISTS public.orders")
    connection.execute(b"DROP FUNCTION IF EXISTS public.refuse CASCADE")


class OpenWindow(SweepWindow):
    """A window that is always open."""

    def __init__(self) -> None:
        super().__init__(10.0)

    def fresh_until(self) -> datetime | None:
        """Give a time that has not come yet."""
        return datetime.now(UTC) + timedelta(seconds=60)


@pytest.fixture
async def sweeper(dsn: str) -> AsyncIterator[Sweeper]:
    """A sweeper on a connection of its own."""
    link = Link(dsn, "finish", worker="test")
    yield Sweeper(link, OpenWindow(), 5.0, random.Random(1))
    await link.close()


@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_a_task_that_cannot_be_swept_ends_no_recovery(
    obstacle: str, sweeper: Sweeper, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbours in its lease and in later leases are taken back, at once and from then on."""
    steps.enqueue(connection, 12, max_attempts=1)
    worker = steps.worker_id()
    leases = [steps.claim(connection, worker, 4) for _ in range(3)]
    bad = leases[0][2].id
    hold_fast(connection, obstacle, bad)
    steps.expire(connection)
    assert await sweeper.sweep() == 0.0, "the rest is next"
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 11
    assert await sweeper.sweep() > 0
    assert rows(connection, "SELECT id FROM pgtasks.tasks") == [(bad,)]
    assert [lease for (lease,) in rows(connection, "SELECT id FROM pgtasks.leases")] == [leases[0][0].lease_id]
    # Another worker dies later: its lease comes after the one that fails, and the others' sweep is one statement.
    steps.enqueue(connection, 2)
    steps.claim(connection, worker, 2)
    steps.expire(connection)
    assert await sweeper.sweep() > 0
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'queued'") == 2
    assert caplog.text.count("expired lease cannot be swept") == 1


async def test_more_leases_that_fail_than_a_sweep_takes_block_no_later_one(
    sweeper: Sweeper, connection: Connection
) -> None:
    """They come first in the order of the ids, and are left out."""
    worker = steps.worker_id()
    steps.enqueue(connection, 60, max_attempts=1)
    bad = [task.id for _ in range(60) for task in steps.claim(connection, worker, 1)]
    hold_fast(connection, "foreign key", *bad)
    steps.enqueue(connection, 3)
    steps.claim(connection, worker, 3)
    steps.expire(connection)
    while await sweeper.sweep() == 0.0:
        pass
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'queued'") == 3


@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_what_could_not_be_swept_is_tried_again(
    obstacle: str, sweeper: Sweeper, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The obstacle is gone: the sweep after the time in which the lease is left out takes the task."""
    monkeypatch.setattr("pgtasks.engine.maintenance.LEFT_OUT_S_MIN", 0.0)
    (task_id,) = steps.enqueue(connection, max_attempts=1)
    steps.claim(connection, steps.worker_id())
    hold_fast(connection, obstacle, task_id)
    steps.expire(connection)
    await sweeper.sweep()
    assert steps.status(connection, task_id) == "running"
    connection.execute(AWAY[obstacle].encode())
    await sweeper.sweep()
    assert steps.status(connection, task_id) == "dead"
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0


@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_an_outcome_that_cannot_be_moved_is_kept_until_it_can(
    obstacle: str, dsn: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbours and all later outcomes go in; its own goes in whole once the obstacle is gone, and runs once."""
    steps.enqueue(connection, 10)
    async with Writer(dsn, connection) as writer:
        tasks = writer.claim(10)
        hold_fast(connection, obstacle, tasks[4].id)
        writer.offer([(task, Completed("1")) for task in tasks])
        await writer.until(lambda: writer.completer.written == 9)
        steps.enqueue(connection, 2)
        writer.offer([(task, Completed("1")) for task in writer.claim(2)])
        await writer.until(lambda: writer.completer.written == 11, 2)
        assert (writer.completer.backlog, writer.completer.refused, writer.failures) == (1, 1, 0)
        assert writer.leases.ids() == [tasks[4].lease_id], "its lease must live on, so that nobody runs it again"
        connection.execute(AWAY[obstacle].encode())
        await writer.until_written()
        assert (writer.completer.lost, writer.completer.refused) == (0, 0)
    assert value(connection, "SELECT result FROM pgtasks.history WHERE id = %s", tasks[4].id) == 1
    assert caplog.text.count("outcome refused by the database") == 1
    assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0


async def test_an_outcome_that_cannot_be_moved_gives_way_to_a_sweep(dsn: str, connection: Connection) -> None:
    """Somebody else has the task by now: the outcome is refused for good, as every one of a lost lease."""
    steps.enqueue(connection, 1)
    async with Writer(dsn, connection) as writer:
        (task,) = writer.claim(1)
        hold_fast(connection, "foreign key", task.id)
        writer.offer([(task, Completed("1"))])
        await writer.until(lambda: writer.completer.refused)
        steps.expire(connection)
        assert steps.sweep(connection).requeued == 1
        await writer.until_written()
        assert writer.completer.lost == 1


CONDITIONS = {
    "internal error": "RAISE EXCEPTION 'not this one' USING ERRCODE = 'XX000'",
    "damaged page": "RAISE EXCEPTION 'not this one' USING ERRCODE = 'XX001'",
    "limit": "RAISE EXCEPTION 'not this one' USING ERRCODE = '54000'",
    "time": "PERFORM pg_catalog.pg_sleep(5)",
}


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("condition", CONDITIONS)
async def test_one_row_that_always_fails_blocks_no_other(condition: str, dsn: str, connection: Connection) -> None:
    """Whatever the condition that PostgreSQL reports: the batch is halved until that row is alone."""
    connection.execute(RAISE.replace("RAISE EXCEPTION 'not this one'", CONDITIONS[condition]).encode())
    steps.enqueue(connection, 12)
    async with Writer(f"{dsn}&options=-c%20statement_timeout%3D300ms", connection) as writer:
        tasks = writer.claim(12)
        rows(connection, "UPDATE pgtasks.tasks SET unique_key = 'bad' WHERE id = %s", tasks[7].id)
        writer.offer([(task, Completed("1")) for task in tasks])
        await writer.until(lambda: writer.completer.refused == 1, 20)
        await writer.until(lambda: writer.completer.written == 11, 20)
        steps.enqueue(connection, 2)
        writer.offer([(task, Completed("1")) for task in writer.claim(2)])
        await writer.until(lambda: writer.completer.written == 13, 2)
        connection.execute(b"DROP TRIGGER refuse ON pgtasks.tasks")
        await writer.until_written(20)
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'") == 14


def test_a_lease_that_failed_is_left_out_for_longer_each_time() -> None:
    """A minute, two, four, up to ten; it is news only once."""
    refused = Refused()
    assert refused.add(1, 0.0)
    assert (refused.left_out(59.0), refused.left_out(61.0)) == ([1], [])
    assert not refused.add(1, 61.0)
    assert (refused.left_out(180.0), refused.left_out(182.0)) == ([1], [])
    for _ in range(20):
        refused.add(1, 1000.0)
    assert (refused.left_out(1599.0), refused.left_out(1601.0)) == ([1], [])


def test_what_is_left_out_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one whose last try is the longest ago is forgotten first."""
    monkeypatch.setattr("pgtasks.engine.maintenance.REFUSED_MAX", 2)
    refused = Refused()
    for lease_id in (1, 2, 1, 3):
        refused.add(lease_id, 0.0)
    assert sorted(refused.left_out(1.0)) == [1, 3]
