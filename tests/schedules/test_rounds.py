"""The scheduler's rounds: how many there are, what they leave alone, and what one bad schedule costs the others."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
import pytest

from pgtasks.engine import scheduler as scheduler_module
from pgtasks.engine.scheduler import Scheduler
from pgtasks.errors import DatabaseUnavailable
from pgtasks.firing import Due, Plan
from tests.database import Connection, rows, value
from tests.schedules.helpers import (
    CountingLink,
    Rig,
    add,
    assert_paired,
    fired,
    make_due,
    notices,
    outcomes,
    problem,
    until,
)

NEXT_YEAR = "0 0 1 1 *"
KEY = "(7074619::bigint << 32) | (hashtextextended(s.name, 0) & 255)"


async def test_it_sleeps_until_the_next_fire(dsn: str, connection: Connection) -> None:
    """Two statements per slot, not more: no polling in between."""
    add(connection, "s", "@every 2s")
    async with Rig(dsn) as rig:
        await until(lambda: fired(connection, "s") == 1)
        before = rig.statements
        await until(lambda: fired(connection, "s") == 3)
        # Each slot: found nothing yet at most twice, read, fired.
        assert rig.statements - before <= 2 * 5
    late = "SELECT max(fired_at - fire_time) < interval '0.5 s' FROM pgtasks.schedule_fires"
    assert value(connection, late)
    assert_paired(connection)


async def test_without_schedules_it_asks_once(dsn: str, connection: Connection) -> None:
    """And then not for fifteen seconds; but it is there at once when somebody adds one."""
    async with Rig(dsn) as rig:
        await asyncio.sleep(1.5)
        assert rig.statements == 1
        assert 14.0 < await rig.schedulers[0].round() <= 15.0
    add(connection, "far away", NEXT_YEAR)
    scheduler = Scheduler(rig.links[0], random.Random(), lambda: True)
    assert await scheduler.round() == 0.0
    assert await scheduler.round() == 15.0
    deaf = Scheduler(rig.links[0], random.Random(), lambda: False)
    assert await deaf.round() == 1.0
    await rig.links[0].close()


async def test_what_it_says_of_its_fires(dsn: str, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """One event for each batch, with how late the latest of its fires was."""
    add(connection, "s", "@every 100s", missed="all")
    make_due(connection, 250.0)
    link = CountingLink(dsn)
    caplog.set_level("INFO")
    await Scheduler(link, random.Random(), lambda: True).round()
    await link.close()
    (said,) = [vars(record)["pgtasks"] for record in caplog.records if record.message == "schedules fired"]
    assert (said["fired"] in {2, 3}, said["skipped_overlap"], said["missed"]) == (True, 0, 0)
    late = "SELECT round(extract(epoch FROM max(fired_at - fire_time)), 3)::float8 FROM pgtasks.schedule_fires"
    assert said["late_s"] == value(connection, late) > 100.0


async def test_a_change_ends_the_sleep(dsn: str, connection: Connection) -> None:
    """`changed` is what the listener sets when the trigger notifies."""
    async with Rig(dsn) as rig, await psycopg.AsyncConnection.connect(dsn, autocommit=True) as listening:
        await listening.execute("LISTEN pgtasks_schedules")
        await until(lambda: rig.statements == 1)
        began = time.monotonic()
        add(connection, "s", "@every 1s")
        async for _ in listening.notifies(timeout=2.0, stop_after=1):
            rig.schedulers[0].changed.set()
        await until(lambda: fired(connection, "s"), 3.0)
        assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("INSERT INTO pgtasks.schedules (name, expression, task) VALUES ('t', '@daily', 'echo')", 1),
        ("UPDATE pgtasks.schedules SET expression = '@hourly'", 1),
        ("UPDATE pgtasks.schedules SET timezone = 'Asia/Tokyo'", 1),
        ("UPDATE pgtasks.schedules SET enabled = false", 1),
        ("UPDATE pgtasks.schedules SET enabled = false WHERE name = 'misspelt'", 0),
        ("INSERT INTO pgtasks.schedules (name, expression, task) VALUES ('t', '@daily', 'a'), ('u', '@daily', 'a')", 1),
        ("UPDATE pgtasks.schedules SET next_fire = now()", 0),
        ("UPDATE pgtasks.schedules SET payload = '{}'", 0),
        ("DELETE FROM pgtasks.schedules", 0),
    ],
)
def test_which_changes_are_announced(dsn: str, connection: Connection, change: LiteralString, expected: int) -> None:
    """Those of the plan, and not what the schedulers themselves write at every slot."""
    add(connection, "s", NEXT_YEAR)
    with psycopg.connect(dsn, autocommit=True) as listening:
        listening.execute("LISTEN pgtasks_schedules")
        connection.execute(change)
        assert notices(listening, connection) == expected


@contextmanager
def held(dsn: str, lock: str) -> Iterator[None]:
    """Hold the advisory keys of all schedules in another session, in a transaction or without."""
    with psycopg.connect(dsn) as other:
        rows(other, f"SELECT pg_advisory_{lock}({KEY}) FROM pgtasks.schedules AS s")
        if "xact" not in lock:
            other.commit()
        yield
        other.rollback()


@pytest.mark.parametrize("lock", ["lock", "lock_shared", "xact_lock", "xact_lock_shared"])
async def test_a_stranger_who_holds_our_keys_delays_little(dsn: str, connection: Connection, lock: str) -> None:
    """Half a second, not two slots; and not one statement more than the second try."""
    for number in range(5):
        add(connection, f"s{number}")
    with held(dsn, lock):
        async with Rig(dsn, 3):
            await until(lambda: all(fired(connection, f"s{number}") >= 2 for number in range(5)))
        late = value(connection, "SELECT max(fired_at - fire_time) FROM pgtasks.schedule_fires")
        assert late.total_seconds() < 0.9
    assert_paired(connection)


async def test_bad_rows_are_flagged_and_the_others_fire(dsn: str, connection: Connection) -> None:
    """K-06: by plain SQL anything gets in; each says what is wrong with it, and is asked about once a minute."""
    bad = {
        "never": ("0 0 30 2 *", "UTC"),
        "fields": ("* * * *", "UTC"),
        "junk": ("'; DROP TABLE x; --", "UTC"),
        "zone": ("* * * * *", "Mars/Olympus"),
        "path": ("* * * * *", "../../etc/passwd"),
        "seconds": ("* * * * * *", "UTC"),
    }
    for name, (expression, timezone) in bad.items():
        add(connection, name, expression, timezone=timezone)
    add(connection, "good")
    async with Rig(dsn) as rig:
        await until(lambda: fired(connection, "good") >= 3)
        assert rig.statements < 25
    assert all(problem(connection, name) for name in bad)
    assert "timezone" in problem(connection, "zone")
    assert problem(connection, "good") is None
    # Mended, it fires.
    rows(connection, "UPDATE pgtasks.schedules SET expression = '@every 1s' WHERE name = 'never'")
    assert problem(connection, "never") is None
    async with Rig(dsn):
        await until(lambda: fired(connection, "never"))


async def test_a_host_that_cannot_plan_one_does_not_stop_those_that_can(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old time zone data on one host: it says so and leaves the schedule to the other, which fires every slot."""
    add(connection, "s")
    plan_all, hosts = scheduler_module._plan_all, ["bad", "good"]  # noqa: SLF001 - this is what differs

    def plan_on_a_host(due: list[Due]) -> tuple[list[Plan], list[tuple[Due, str]]]:
        if hosts[0] == "bad":
            return [], [(one, "timezone: unknown here") for one in due]
        return plan_all(due)

    monkeypatch.setattr(scheduler_module, "_plan_all", plan_on_a_host)
    links = [CountingLink(dsn), CountingLink(dsn)]
    bad, good = (Scheduler(link, random.Random(), lambda: True) for link in links)
    await bad.round()
    assert problem(connection, "s") == "timezone: unknown here"
    # It does not look again for a minute, however often it wakes.
    before = links[0].statements
    assert await bad.round() == 15.0
    assert links[0].statements == before + 1
    # The other one plans it at once, and the flag is gone.
    hosts[0] = "good"
    await good.round()
    make_due(connection, 1.5)
    await good.round()
    assert (fired(connection, "s"), problem(connection, "s")) == (1, None)
    for link in links:
        await link.close()


async def test_more_locked_rows_than_a_batch_has(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open transaction has them all: the one that is free has its turn nevertheless."""
    monkeypatch.setattr(scheduler_module, "BATCH_MAX", 5)
    for number in range(30):
        add(connection, f"s{number}")
    make_due(connection)
    with psycopg.connect(dsn) as other:
        rows(other, "SELECT 1 FROM pgtasks.schedules FOR UPDATE")
        add(connection, "free")
        async with Rig(dsn):
            await until(lambda: fired(connection, "free"), 30.0)
        assert value(connection, "SELECT count(*) FROM pgtasks.schedule_fires WHERE schedule <> 'free'") == 0


async def test_one_that_is_refused_does_not_stop_the_others(dsn: str, connection: Connection) -> None:
    """A CHECK on tasks refuses its rows: its slots are recorded as missed, it says why, and it goes on later."""
    for number in range(30):
        add(connection, f"s{number}", "@every 2s")
    add(connection, "bad", "@every 2s", task="bad")
    connection.execute("ALTER TABLE pgtasks.tasks ADD CONSTRAINT no_bad CHECK (name <> 'bad')")
    try:
        async with Rig(dsn, 2) as rig:
            await until(lambda: all(fired(connection, f"s{number}") >= 2 for number in range(30)))
            await until(lambda: outcomes(connection, "bad")[:2] == ["missed", "missed"])
            assert rig.statements < 150
        assert "no_bad" in problem(connection, "bad")
        assert {problem(connection, f"s{number}") for number in range(30)} == {None}
    finally:
        connection.execute("ALTER TABLE pgtasks.tasks DROP CONSTRAINT no_bad")
    async with Rig(dsn):
        await until(lambda: fired(connection, "bad"))
    assert problem(connection, "bad") is None
    assert_paired(connection)


async def test_one_whose_key_is_in_flight_does_not_stop_the_others(dsn: str, connection: Connection) -> None:
    """Somebody's open transaction has a task with its unique key: it waits a minute, the others do not."""
    for number in range(10):
        add(connection, f"s{number}", "@every 1s")
    add(connection, "stuck", "@every 1s", overlap="skip")
    with psycopg.connect(dsn) as other:
        rows(other, "SELECT pgtasks.enqueue('echo', unique_key => 'schedule:stuck')")
        async with Rig(dsn, 2):
            await until(lambda: all(fired(connection, f"s{number}") >= 3 for number in range(10)), 15.0)
            await until(lambda: problem(connection, "stuck"))
    assert "lock timeout" in problem(connection, "stuck")
    assert outcomes(connection, "stuck") == []
    # Nothing of it is lost: the slots are still due.
    rows(connection, "UPDATE pgtasks.schedules SET problem_at = NULL")
    async with Rig(dsn):
        await until(lambda: outcomes(connection, "stuck"))
    assert problem(connection, "stuck") is None
    assert_paired(connection)


async def test_a_key_in_flight_does_not_make_the_others_late(dsn: str, connection: Connection) -> None:
    """Many with a unique key, one of which is held: neither those nor the ones without a key wait for it."""
    for number in range(20):
        add(connection, f"free{number}", "@every 1s")
        add(connection, f"keyed{number}", "@every 1s", overlap="skip")
    add(connection, "poison", "@every 1s", overlap="skip")
    with psycopg.connect(dsn) as other:
        rows(other, "SELECT pgtasks.enqueue('echo', unique_key => 'schedule:poison')")
        async with Rig(dsn):
            await until(lambda: all(len(outcomes(connection, f"free{number}")) >= 5 for number in range(20)), 15.0)
            await until(lambda: problem(connection, "poison"))
        count = "SELECT count(*), max(fired_at - fire_time) FROM pgtasks.schedule_fires WHERE schedule LIKE %s"
        missed = "SELECT count(*) FROM pgtasks.schedule_fires WHERE outcome = 'missed' AND schedule LIKE 'free%'"
        assert value(connection, missed) == 0
        for names, late_s in (("free%", 0.7), ("keyed%", 2.0)):
            ((found, late),) = rows(connection, count, names)
            assert found >= 20 * 3
            assert late.total_seconds() < late_s
    assert outcomes(connection, "poison") == []
    assert_paired(connection)


async def test_one_that_is_being_edited_costs_no_busy_loop(dsn: str, connection: Connection) -> None:
    """An open transaction has its row: the others fire on time, and there are few rounds."""
    add(connection, "edited")
    with psycopg.connect(dsn) as other:
        make_due(connection, 1.0, "edited")
        rows(other, "SELECT 1 FROM pgtasks.schedules WHERE name = 'edited' FOR UPDATE")
        async with Rig(dsn) as rig:
            await asyncio.sleep(3.0)
            assert rig.statements < 3 * 14
            add(connection, "free")
            rig.schedulers[0].changed.set()
            await until(lambda: fired(connection, "free") >= 2)
            late = value(connection, "SELECT max(fired_at - fire_time) FROM pgtasks.schedule_fires")
            assert late.total_seconds() < 0.6
            assert outcomes(connection, "edited") == []
            other.rollback()
            await until(lambda: fired(connection, "edited"), 3.0)


async def test_a_database_that_went_away_loses_no_slot(dsn: str, connection: Connection) -> None:
    """The round fails as a whole and is tried again; slots are caught up by the policy."""
    add(connection, "s", missed="all")
    link = CountingLink(dsn)
    scheduler = Scheduler(link, random.Random(), lambda: True)
    await scheduler.round()
    rows(
        connection,
        "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/schedule%'",
    )
    with pytest.raises(DatabaseUnavailable):
        await scheduler.round()
    await asyncio.sleep(1.1)
    await scheduler.round()
    assert fired(connection, "s") >= 1
    await link.close()
