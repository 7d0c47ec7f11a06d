"""Workers let history go by whole days, in small transactions that nobody waits for (B-02)."""

import random
import time

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgtasks.engine import retention
from pgtasks.engine.retention import Pruner
from pgtasks.store import retention as statements
from pgtasks.store.link import Link
from pgtasks.store.session import connect, fetch_one
from tests.database import Connection, value, wait_until
from tests.retention.conftest import AddDay, days, fill
from tests.workers import WorkerProcess

pytestmark = pytest.mark.pg
WEEK_S = 7 * 86400.0


async def prune(dsn: str, keep_s: float) -> float:
    """Do the round of a worker that has lived for a while; give when it would come back."""
    links = Link(dsn, "finish"), Link(dsn, "schedule")
    pruner = Pruner(*links, keep_s, random.Random(1))
    try:
        await pruner.prune()
        return await pruner.prune()
    finally:
        for link in links:
            await link.close()


async def test_whole_days_go_and_younger_ones_stay(owner: Connection, fresh_database: str, add_day: AddDay) -> None:
    """A day goes when all of it is older than what is kept; dead letters stay whatever their age."""
    add_day(9), add_day(8), add_day(8, parent="attempts")
    kept = {add_day(7), add_day(1), add_day(6, parent="attempts")}
    owner.execute(
        "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, finished_at, attempt, priority, reason, queue, name,"
        " payload) VALUES (1, now(), now(), now() - interval '1 year', 1, 0, 'permanent', 'default', 'add', '{}')"
    )
    assert await prune(fresh_database, WEEK_S) > retention.PRUNE_S / 2
    assert days(owner) == kept
    assert value(owner, "SELECT count(*) FROM pgtasks.history") == 20
    assert value(owner, "SELECT count(*) FROM pgtasks.dead_letters") == 1


async def test_rows_of_a_default_partition_go_in_batches(
    owner: Connection, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a day had no partition of its own."""
    monkeypatch.setattr(statements, "BATCH_ROWS", 7)
    for parent in ("history", "attempts"):
        fill(owner, parent, "now() - interval '30 days'", 20)
        fill(owner, parent, "now()", 3)
    await prune(fresh_database, WEEK_S)
    assert value(owner, "SELECT count(*) FROM pgtasks.history") == 3
    assert value(owner, "SELECT count(*) FROM pgtasks.attempts") == 3


async def test_nothing_goes_when_all_is_to_be_kept(owner: Connection, fresh_database: str, add_day: AddDay) -> None:
    """0 keeps history for ever; fires go all the same."""
    add_day(400)
    owner.execute(
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome)"
        " VALUES ('gone', now() - interval '40 days', 'missed')"
    )
    await prune(fresh_database, 0)
    assert len(days(owner)) == 1
    assert value(owner, "SELECT count(*) FROM pgtasks.schedule_fires") == 0


async def test_fires_are_kept_longer_than_history(owner: Connection, fresh_database: str) -> None:
    """However long that is."""
    owner.execute(
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome)"
        " SELECT 'gone', now() - make_interval(days => d), 'missed' FROM unnest(ARRAY[20, 40, 60, 70]) d"
    )
    await prune(fresh_database, 60 * 86400.0)
    assert value(owner, "SELECT count(*) FROM pgtasks.schedule_fires") == 3
    await prune(fresh_database, 3600.0)
    assert value(owner, "SELECT count(*) FROM pgtasks.schedule_fires") == 1


async def test_a_lock_on_schedules_is_waited_for_a_moment_only(
    owner: Connection, fresh_database: str, add_day: AddDay
) -> None:
    """As a migration takes one: history goes, fires stay, and it is tried again soon."""
    add_day(9)
    owner.execute(
        "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome)"
        " VALUES ('gone', now() - interval '40 days', 'missed')"
    )
    with psycopg.connect(fresh_database) as other:
        other.execute("LOCK TABLE pgtasks.schedules IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        assert await prune(fresh_database, WEEK_S) < retention.PRUNE_S / 2
        assert time.monotonic() - began < 3.0
    assert not days(owner)
    assert value(owner, "SELECT count(*) FROM pgtasks.schedule_fires") == 1


async def test_a_reader_of_that_day_is_waited_for_a_moment_only(
    owner: Connection, fresh_database: str, add_day: AddDay
) -> None:
    """It stays, completions go on, and it is tried again soon."""
    add_day(9)
    with psycopg.connect(fresh_database) as reader:
        reader.execute("SELECT count(*) FROM pgtasks.history")
        began = time.monotonic()
        assert await prune(fresh_database, WEEK_S) <= retention.PRUNE_AGAIN_S * 1.2
        assert time.monotonic() - began < 5
        fill(owner, "history", "now()", 1)
        reader.rollback()
    assert len(days(owner)) == 1
    await prune(fresh_database, WEEK_S)
    assert days(owner) == set()


async def test_a_role_that_may_not_prune_is_no_failure(
    owner: Connection, fresh_database: str, add_day: AddDay, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so at each round, and the rounds stay as far apart as ever."""
    add_day(9)
    owner.execute("CREATE ROLE no_pruner LOGIN")
    try:
        owner.execute("GRANT USAGE ON SCHEMA pgtasks TO no_pruner")
        assert await prune(make_conninfo(fresh_database, user="no_pruner"), WEEK_S) > retention.PRUNE_S / 2
        assert "history not pruned" in caplog.text
        assert "fires not pruned" in caplog.text
        assert len(days(owner)) == 1
    finally:
        owner.execute("DROP OWNED BY no_pruner")
        owner.execute("DROP ROLE no_pruner")


async def test_one_prunes_at_a_time(owner: Connection, fresh_database: str, add_day: AddDay) -> None:
    """Whoever comes meanwhile has nothing to do."""
    add_day(9)
    with psycopg.connect(fresh_database) as other:
        other.execute("SELECT * FROM pgtasks.prune(interval '7 days')")
        with connect(fresh_database, "cli") as connection:
            assert fetch_one(connection, statements.prune(keep_s=WEEK_S)) == (0, 0)
        other.rollback()
    assert len(days(owner)) == 1


@pytest.mark.parametrize("keep", ["5000 years", "100000 years"])
def test_what_is_kept_for_ages_stays(owner: Connection, add_day: AddDay, keep: str) -> None:
    """Also where that would begin before Christ, or before all time."""
    add_day(9)
    assert owner.execute("SELECT partitions FROM pgtasks.prune(%s::interval)", (keep,)).fetchone() == (0,)
    assert len(days(owner)) == 1


def test_too_little_is_never_kept(owner: Connection) -> None:
    """A slip of the pen does not empty the history."""
    for keep in ("interval '1 minute'", "NULL", "interval '-1 day'"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="keep must be at least an hour"):
            owner.execute(f"SELECT pgtasks.prune({keep})".encode())


def test_a_worker_prunes(owner: Connection, fresh_database: str, add_day: AddDay) -> None:
    """By itself, while it works, within half a minute of its start."""
    add_day(3)
    with WorkerProcess("tests.apps.fast_pruning:app", fresh_database, "--keep", "1d") as worker:
        wait_until(lambda: not days(owner), 20, hint=worker.output)
        wait_until(lambda: "history pruned" in worker.output(), 5, hint=worker.output)
