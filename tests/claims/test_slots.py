"""Queues share a worker's slots: limits hold, turns are fair, and a freed slot is used at once."""

from pgtasks.engine.slots import Slots
from pgtasks.settings import QueueSlots
from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.database import Connection, rows


def _fill(connection: Connection, queue: str, count: int) -> None:
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, queue) SELECT 't', %s FROM generate_series(1, %s)", (queue, count)
    )


def test_slots_are_counted_in_all_and_per_queue() -> None:
    """A queue's own limit and the worker's both hold."""
    slots = Slots(5, (QueueSlots("a", 2), QueueSlots("b")))
    slots.take("a", 2)
    assert (slots.free(), slots.free_in("a"), slots.free_in("b"), slots.full_queues()) == (3, 0, 3, {"a"})
    slots.take("b", 3)
    assert not slots.any_free()
    slots.give_back("a", 1)
    assert (slots.free_in("a"), slots.free_in("b"), slots.full_queues()) == (1, 1, set())


async def test_a_queues_slots_are_never_exceeded_and_always_used(dsn: str, connection: Connection) -> None:
    """Two slots of ten, a safety poll of a minute: 20 tasks of 50 ms take half a second, not ten minutes."""
    _fill(connection, "few", 20)
    async with Rig(dsn, queues="few:2,idle", hold_s=0.05) as rig:
        await rig.ran(20, timeout_s=3.0)
        assert rig.peak == 2


async def test_a_queue_without_slots_keeps_no_bell(dsn: str, connection: Connection) -> None:
    """Nobody is woken for it; when its slot is free, the next task starts although everything slept."""
    _fill(connection, "few", 2)
    async with Rig(dsn, queues="few:1,idle", hold_s=0.8) as rig:
        await rig.ran(1)
        await rig.asleep()
        assert rig.bell.armed == 1
        held = "SELECT pg_try_advisory_xact_lock_shared(hashtextextended(%s, 7074617))"
        assert rows(connection, held, "few") == [(True,)]
        assert rows(connection, held, "idle") == [(False,)]
        await rig.ran(2, timeout_s=2.0)
        first, second = rig.started.values()
        assert 0.8 <= second - first < 0.95


async def test_queues_take_turns(dsn: str, connection: Connection) -> None:
    """Two backlogs of one worker advance side by side; an order of naming gives no privilege."""
    _fill(connection, "a", 200)
    _fill(connection, "b", 200)
    ids = dict(rows(connection, "SELECT id, queue FROM pgtasks.tasks"))
    async with Rig(dsn, queues="a,b", concurrency=10, hold_s=0.005) as rig:
        await rig.ran(200)
        turns = [ids[task_id] for task_id in rig.order[:200]]
    assert 60 <= turns.count("a") <= 140


async def test_a_saturated_queue_does_not_starve_another(dsn: str, connection: Connection) -> None:
    """C-05, the part of other queues: its task starts with the next slots that get free."""
    _fill(connection, "busy", 500)
    async with Rig(dsn, queues="busy,rare", concurrency=4, hold_s=0.02) as rig:
        await rig.ran(20)
        _fill(connection, "rare", 1)
        rare = rows(connection, "SELECT id FROM pgtasks.tasks WHERE queue = 'rare'")[0][0]
        before = len(rig.order)
        await until(lambda: rare in rig.started, 2.0)
        assert rig.order.index(rare) - before <= 40
