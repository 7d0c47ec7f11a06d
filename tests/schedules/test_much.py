"""Rounds with much to do: a year of missed slots, schedules that come and go."""

import asyncio
import random
import threading
import time
from typing import LiteralString

import psycopg
import pytest

from pgtasks.engine.scheduler import Scheduler
from tests.database import Connection, Server, rows, value
from tests.schedules.helpers import (
    CountingLink,
    add,
    assert_paired,
    connect,
    fired,
    make_due,
    outcomes,
)

NEXT_YEAR = "0 0 1 1 *"


async def test_a_year_of_seconds_times_a_hundred(dsn: str, connection: Connection) -> None:
    """After a long stop the first round is bounded in slots and in time; the others' turn comes soon."""
    for number in range(100):
        add(connection, f"s{number}", "* * * * * *", seconds=True)
    make_due(connection, 365 * 86400)
    link = CountingLink(dsn)
    scheduler = Scheduler(link, random.Random(), lambda: True)
    began = time.monotonic()
    await scheduler.round()
    assert time.monotonic() - began < 5.0
    assert 1000 <= value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") <= 6000
    await link.close()


async def test_planning_does_not_hold_up_the_event_loop(dsn: str, connection: Connection) -> None:
    """Claims, heartbeats and completions go on while a catch-up is planned."""
    for number in range(20):
        add(connection, f"s{number}", "* * * * * *", seconds=True)
    make_due(connection, 365 * 86400)
    link = CountingLink(dsn)
    round_ = asyncio.create_task(Scheduler(link, random.Random(), lambda: True).round())
    longest_s = 0.0
    while not round_.done():
        began = time.monotonic()
        await asyncio.sleep(0.005)
        longest_s = max(longest_s, time.monotonic() - began)
    await round_
    assert longest_s < 0.25
    await link.close()


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Apia", "<+03>-3"])
async def test_the_servers_time_zone_does_not_matter(server: Server, fresh_database: str, zone: LiteralString) -> None:
    """Behind a transaction pooler the session has the server's settings; times are compared in UTC."""
    server.alter(fresh_database, f"SET timezone = '{zone}'")
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        add(connection, "s", missed="all")
        add(connection, "far", NEXT_YEAR)
        link = CountingLink(fresh_database, pooler="transaction")
        scheduler = Scheduler(link, random.Random(), lambda: True)
        deadline = time.monotonic() + 8.0
        while fired(connection, "s") < 2 and time.monotonic() < deadline:
            delay_s = await scheduler.round()
            assert delay_s <= 1.01
            await asyncio.sleep(delay_s)
        await link.close()
        assert fired(connection, "s") >= 2
        assert_paired(connection)


def test_a_schedule_is_removed_and_made_anew_all_the_time(dsn: str, connection: Connection) -> None:
    """K-12: five schedulers at the boundary, 200 removals: nothing fires after one, nobody fails."""
    stop = threading.Event()
    after: list[int] = []

    def churn() -> None:
        with psycopg.connect(dsn, autocommit=True) as mine:
            for _ in range(200):
                add(mine, "s")
                make_due(mine, 1.0, "s")
                time.sleep(0.005)  # so that schedulers meet it
                rows(mine, "DELETE FROM pgtasks.schedules WHERE name = 's'")
                count = "SELECT count(*) FROM pgtasks.tasks"
                first = value(mine, count)
                after.append(value(mine, count) - first)
        stop.set()

    async def fire() -> None:
        links = [CountingLink(dsn) for _ in range(5)]
        schedulers = [Scheduler(link, random.Random(), lambda: True) for link in links]

        async def work(one: Scheduler) -> None:
            while not stop.is_set():
                await one.round()

        await asyncio.gather(*map(work, schedulers))
        for link in links:
            await link.close()

    thread = threading.Thread(target=churn)
    thread.start()
    asyncio.run(fire())
    thread.join()
    assert set(after) == {0}
    assert_paired(connection)
    assert outcomes(connection, "s")
    with connect(dsn) as mine:
        assert value(mine, "SELECT count(*) FROM pgtasks.schedules") == 0
