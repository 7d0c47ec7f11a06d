"""A queue full of tasks nobody here can run: left alone, walked past, and slept on."""

import asyncio
import time

import psutil  # type: ignore[import-untyped]  # it ships without types

from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.database import Connection, rows, value

UNKNOWN = 200_000


def _flood(connection: Connection, count: int) -> None:
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, priority, run_at)"
        " SELECT 'stranger', n %% 2, clock_timestamp() - interval '1 h' FROM generate_series(1, %s) n",
        (count,),
    )
    connection.execute("VACUUM ANALYZE pgtasks.tasks")


def _cpu_s(connection: Connection) -> float:
    """CPU time of this process, which the worker runs in, and of the worker's backends."""
    backends = rows(connection, "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/%'")
    spent = [psutil.Process(pid).cpu_times() for (pid,) in backends]
    return time.process_time() + sum(float(times.user + times.system) for times in spent)


async def test_known_tasks_behind_a_flood_run_and_the_worker_sleeps(dsn: str, connection: Connection) -> None:
    """200,000 strangers in front: found at once, then hardly any work while idle, and never a claim of a stranger."""
    _flood(connection, UNKNOWN)
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, 100)")
    async with Rig(dsn, concurrency=20) as rig:
        await rig.ran(100)
        await rig.asleep()
        looks, claims, cpu_s, began = rig.claimer.rescans, rig.claimer.claims, _cpu_s(connection), time.monotonic()
        await asyncio.sleep(3.0)
        elapsed_s = time.monotonic() - began
        # One look owed for falling asleep; the safety poll is far away.
        assert rig.claimer.rescans - looks <= 2
        # Near looks while the owed one waits for its share of the time, which is longer on a busy machine.
        assert rig.claimer.claims - claims <= 12
        assert (_cpu_s(connection) - cpu_s) / elapsed_s < 0.25
        connection.execute("INSERT INTO pgtasks.tasks (name) VALUES ('t')")
        inserted = time.monotonic()
        await until(lambda: len(rig.started) == 101)
        assert time.monotonic() - inserted < 1.0
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE name = 'stranger' AND attempt = 0") == UNKNOWN


async def test_rescans_past_a_flood_keep_to_their_share_under_load(dsn: str, connection: Connection) -> None:
    """The claims of known tasks go on from the cursor; looks from the head get rare instead of slow."""
    _flood(connection, UNKNOWN // 4)
    connection.execute("INSERT INTO pgtasks.tasks (name) SELECT 't' FROM generate_series(1, 2000)")
    async with Rig(dsn, concurrency=10, hold_s=0.005) as rig:
        began = time.monotonic()
        await rig.ran(2000)
        elapsed_s = time.monotonic() - began
        assert rig.claimer.claims > 100
        assert rig.claimer.rescans < 5 + elapsed_s / 0.5


async def test_delayed_strangers_do_not_wake_a_sleeper_one_by_one(dsn: str, connection: Connection) -> None:
    """500 of them become due within a second; it wakes for 20 at a time at most, and for its own in time."""
    async with Rig(dsn) as rig:
        await rig.asleep()
        connection.execute(
            "INSERT INTO pgtasks.tasks (name, run_at) SELECT CASE n WHEN 400 THEN 't' ELSE 'stranger' END,"
            " clock_timestamp() + interval '1 s' + n * interval '2 ms' FROM generate_series(1, 500) n"
        )
        due = time.monotonic() + 1.8
        await asyncio.sleep(0.5)
        before = rig.claimer.rescans
        await rig.ran(1)
        assert next(iter(rig.started.values())) - due < 0.5
        assert rig.claimer.rescans - before < 60
