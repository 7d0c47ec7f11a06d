"""Workers asleep and producers of every kind: no task waits, though no poll would find it for a minute."""

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from pgtasks.engine.bell import DOZE_S, RECHECK_S, Bell, Sleep
from pgtasks.store import ringing, session
from pgtasks.store.link import Link
from tests.claims.helpers import avalue, until
from tests.claims.rig import Rig
from tests.database import Connection, rows
from tests.workers import WorkerProcess

Async = psycopg.AsyncConnection[Any]
INSERT = "INSERT INTO pgtasks.tasks (name, queue) VALUES (%s, %s) RETURNING id"
# What a busy machine may add to a wait that is some milliseconds by design.
SLACK_S = 0.5


async def _insert(connection: Async, name: str = "t", queue: str = "default") -> tuple[int, float]:
    """Insert a task; gives its id and when it was committed."""
    task_id = await avalue(connection, INSERT, name, queue)
    return task_id, time.monotonic()


async def _waited(rig: Rig, task_id: int, committed: float) -> float:
    """Wait for a task to start and give how long that took from its commit."""
    await until(lambda: task_id in rig.started, hint=f"task {task_id} was not found")
    return rig.started[task_id] - committed


@asynccontextmanager
async def _transaction(dsn: str) -> AsyncIterator[Async]:
    """A producer's session whose transactions end when the test says so."""
    async with await psycopg.AsyncConnection.connect(dsn) as opened:
        yield opened


async def test_an_idle_worker_picks_up_at_once(dsn: str, aconnection: Async) -> None:
    """Ten times asleep, ten times woken by the insert."""
    waits = []
    async with Rig(dsn) as rig:
        for _ in range(10):
            await rig.asleep()
            waits.append(await _waited(rig, *await _insert(aconnection)))
    assert statistics.median(waits) < 0.05
    assert max(waits) < SLACK_S


@pytest.mark.parametrize("asleep", [True, False])
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_transaction_open_for_seconds(dsn: str, aconnection: Async, end: str, *, asleep: bool) -> None:
    """Begun before the worker could sleep it keeps it awake; begun after, it rings as it commits."""
    async with Rig(dsn) as rig, _transaction(dsn) as producer:
        if asleep:
            await rig.asleep()
        held = await avalue(producer, INSERT, "t", "default")
        async with producer.transaction(force_rollback=True):
            await _insert(producer)
        await asyncio.sleep(1.2)
        assert bool(rig.bell.armed) == asleep
        await (producer.rollback() if end == "rollback" else producer.commit())
        committed = time.monotonic()
        if end == "rollback":
            await rig.asleep()
            held, committed = await _insert(aconnection)
        assert await _waited(rig, held, committed) < SLACK_S
        await rig.asleep()
        assert len(rig.started) == 1


async def test_a_long_transaction_of_somebody_else_delays_nobody(dsn: str, aconnection: Async) -> None:
    """Tasks committed beside it are found by the polls of a worker that it keeps awake."""
    async with _transaction(dsn) as producer:
        await avalue(producer, INSERT, "t", "default")
        async with Rig(dsn) as rig:
            await until(lambda: rig.claimer.rescans)
            for _ in range(5):
                assert await _waited(rig, *await _insert(aconnection)) < SLACK_S


async def test_a_killed_sleeper_does_not_take_the_bell_along(dsn: str, connection: Connection) -> None:
    """SIGKILL of the process that holds it: another sleeper takes over, and what came silently is found."""
    holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted"
    with WorkerProcess("tests.apps.basic:app", dsn) as process:
        process.wait_ready()
        await until(lambda: rows(connection, holder))
        ((pid,),) = rows(connection, holder)
        async with Rig(dsn, "echo") as rig:
            await until(lambda: rig.claimer.rescans)
            await asyncio.sleep(DOZE_S + 0.1)
            assert not rig.bell.armed
            process.kill()
            await until(lambda: (pid,) not in rows(connection, holder))
            ((task_id,),) = rows(connection, INSERT, "echo", "default")
            assert await _waited(rig, task_id, time.monotonic()) < RECHECK_S + SLACK_S
            await rig.asleep()


async def test_the_holder_rings_as_it_wakes_even_if_somebody_did(dsn: str, connection: Connection) -> None:
    """Who heard the first ring may have gone back to sleep on this bell before it was given back."""
    link = Link(dsn, "finish")
    bell = Bell(
        dsn,
        ["one", "two"],
        worker="w",
        wanted=True,
        notify=lambda channel: link.fetch_all(ringing.notify(channel)),
        on_cancel=lambda _: None,
        on_schedules=lambda: None,
    )
    await bell.keep_session()
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute("LISTEN pgtasks")
        for rung in (False, True):
            assert await bell.fall_asleep(["one", "two"]) is Sleep.ARMED
            if rung:
                connection.execute("SELECT pgtasks.ring('one')")
                await until(bell.rung.is_set)
            await bell.wake_up()
            connection.execute("NOTIFY pgtasks, 'end'")
            expected = ["one", "one", "two", "end"] if rung else ["one", "two", "end"]
            heard = [note.payload for note in listener.notifies(timeout=5.0, stop_after=len(expected))]
            assert sorted(heard) == sorted(expected)
    await bell.close()
    await link.close()


async def test_a_holder_that_wakes_for_its_own_reasons_wakes_who_relied_on_it(
    dsn: str, connection: Connection, aconnection: Async
) -> None:
    """It releases the bell, a task comes in silently, it takes the bell again: the other must have looked."""
    with psycopg.connect(dsn, autocommit=True) as holder:
        session.fetch_all(holder, ringing.arm_bells(["default"]))
        async with Rig(dsn) as rig:
            await until(lambda: rig.claimer.rescans)
            for _ in range(5):
                # Not only woken: back on the holder's bell.
                looks = rig.claimer.rescans
                session.fetch_all(holder, ringing.release_bells(["default"]))
                ((task_id,),) = connection.execute(INSERT.encode(), ("t", "default")).fetchall()
                committed = time.monotonic()
                session.fetch_all(holder, ringing.arm_bells(["default"]))
                assert await _waited(rig, task_id, committed) < SLACK_S
                while rig.claimer.rescans <= looks:  # noqa: ASYNC110 - what it waits for is a count
                    await asyncio.sleep(0.005)


async def test_a_worker_that_cannot_run_a_task_does_not_hide_it(dsn: str, aconnection: Async) -> None:
    """Two workers with other names on one queue; each in turn holds the bell and hears it for the other."""
    async with Rig(dsn, "a") as first, Rig(dsn, "b") as second:
        await until(lambda: first.bell.armed or second.bell.armed)
        for _ in range(5):
            for name, rig in (("a", first), ("b", second)):
                assert await _waited(rig, *await _insert(aconnection, name)) < RECHECK_S + SLACK_S


async def test_delayed_and_retried_tasks_start_on_time_while_asleep(dsn: str, aconnection: Async) -> None:
    """Nobody notifies when a task becomes due: the sleeper knows when to wake, also for one it was rung for."""
    async with Rig(dsn) as rig:
        await rig.asleep()
        for delay_s in (0.7, 0.3, 1.1):
            due = time.monotonic() + delay_s
            task_id = await avalue(
                aconnection, "SELECT pgtasks.enqueue('t', delay => make_interval(secs => %s))", delay_s
            )
            waited = await _waited(rig, task_id, due)
            assert -0.05 < waited < SLACK_S


async def test_workers_that_are_awake_are_never_notified(dsn: str, aconnection: Async) -> None:
    """N-02: a steady trickle rings at its beginning only, as the worker wakes."""
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute("LISTEN pgtasks")
        async with Rig(dsn) as rig:
            await rig.asleep()
            ids = []
            for _ in range(100):
                ids.append((await _insert(aconnection))[0])
                await asyncio.sleep(0.01)
            await rig.ran(100)
        await aconnection.execute("NOTIFY pgtasks, 'end'")
        heard = 0
        for note in listener.notifies(timeout=5.0):
            if note.payload == "end":
                break
            heard += 1
    # One ring of the producer, one of the sleeper. Only a machine that stands still for longer than
    # DOZE_S lets the worker fall asleep in between.
    assert 1 <= heard <= 6


class _Producers:
    """Sessions that insert in every way, for a while, and note when each task was committed."""

    def __init__(self, dsn: str, seconds: float) -> None:
        self._dsn, self._until = dsn, time.monotonic() + seconds
        self.committed: dict[int, float] = {}

    async def produce(self, seed: int) -> None:
        rng = random.Random(seed)
        async with _transaction(self._dsn) as connection:
            while time.monotonic() < self._until:
                queue = rng.choice(["one", "two"])
                ids = [
                    await avalue(connection, INSERT, rng.choice(["a", "b"]), queue) for _ in range(rng.randint(1, 3))
                ]
                if rng.random() < 0.2:
                    async with connection.transaction(force_rollback=True):
                        await avalue(connection, INSERT, "a", "one")
                await asyncio.sleep(rng.choice([0.0, 0.0, 0.01, 0.3, 0.6]))
                if rng.random() < 0.2:
                    await connection.rollback()
                else:
                    await connection.commit()
                    self.committed.update(dict.fromkeys(ids, time.monotonic()))
                await asyncio.sleep(rng.choice([0.0, 0.02, 0.045, 0.055, 0.24, 0.26, 0.5]))


@pytest.mark.slow
async def test_no_task_waits_under_a_storm_of_everything(dsn: str) -> None:
    """Workers with other names and queues fall asleep and wake while producers come and go."""
    async with (
        Rig(dsn, "a", "b", queues="one,two") as both,
        Rig(dsn, "a", "b", queues="one") as one,
        Rig(dsn, "b", queues="one,two") as only_b,
    ):
        producers = _Producers(dsn, 5.0)
        await asyncio.gather(*(producers.produce(seed) for seed in range(4)))
        rigs = (both, one, only_b)
        await until(lambda: all(any(task in rig.started for rig in rigs) for task in producers.committed))
        started = {task: at for rig in rigs for task, at in rig.started.items()}
        waits = [started[task] - at for task, at in producers.committed.items()]
    assert len(started) == len(producers.committed)
    assert max(waits) < 1.0, sorted(waits)[-10:]
