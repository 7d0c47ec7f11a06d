"""A dead worker's leases are ended and swept, and nobody else's; what it sent last ends in one outcome."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from uuid import UUID, uuid4

import psycopg
import pytest

from pgtasks.engine import lost_workers
from pgtasks.engine.lost_workers import LostWorkers, give_back
from pgtasks.outcome import Completed
from pgtasks.store import ringing, statements
from pgtasks.store.session import Statement, SyncConnection, connect, fetch_all, fetch_one
from tests.database import Connection, rows, value, wait_until

pytestmark = pytest.mark.pg
CAUSE = "its process was killed by SIGKILL (9)"


@pytest.fixture
def engine(dsn: str) -> Iterator[SyncConnection]:
    """A connection as the supervisor has it."""
    with closing(connect(dsn, "finish")) as opened:
        yield opened


def claimed(connection: Connection, worker_id: UUID, count: int = 1, *, attempt: int = 1) -> tuple[int, list[int]]:
    """Add running tasks under one lease of a worker with half a minute left, and return the lease and their ids."""
    lease_id = value(
        connection,
        "INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids)"
        " VALUES (%s, clock_timestamp() + interval '30 s', '{}') RETURNING id",
        worker_id,
    )
    found = rows(
        connection,
        "INSERT INTO pgtasks.tasks (name, state, attempt, max_attempts, lease_id, claimed_at)"
        " SELECT 'x', 'running', %s, 3, %s, clock_timestamp() FROM generate_series(1, %s::int) RETURNING id",
        attempt,
        lease_id,
        count,
    )
    ids = sorted(id for (id,) in found)
    rows(connection, "UPDATE pgtasks.leases SET task_ids = %s WHERE id = %s", ids, lease_id)
    return lease_id, ids


def states(connection: Connection) -> list[tuple[int, str, int | None]]:
    """The live tasks, by id: state and lease."""
    return rows(connection, "SELECT id, state, lease_id FROM pgtasks.tasks ORDER BY id")


def test_only_its_own_leases_are_given_back(connection: Connection, engine: SyncConnection) -> None:
    """Two leases with three tasks, one of them in its last attempt; its neighbour's lease lives on."""
    dead, neighbour = uuid4(), uuid4()
    _, two = claimed(connection, dead, 2)
    _, last = claimed(connection, dead, attempt=3)
    other_lease, other = claimed(connection, neighbour)
    assert give_back(engine, dead, CAUSE) == (2, 3)
    expected = sorted([*((id, "queued", None) for id in two), (other[0], "running", other_lease)])
    assert states(connection) == expected
    assert rows(connection, "SELECT id, reason, worker_id, error FROM pgtasks.dead_letters") == [
        (last[0], "worker_lost", dead, f"{CAUSE} in attempt 3, the last one")
    ]
    assert rows(connection, "SELECT outcome, error FROM pgtasks.attempts") == [("worker_lost", CAUSE)] * 3
    assert rows(connection, "SELECT id, expires_at > clock_timestamp() + interval '20 s' FROM pgtasks.leases") == [
        (other_lease, True)
    ]
    assert give_back(engine, dead, CAUSE) == (0, 0)


def test_its_row_is_removed(connection: Connection, engine: SyncConnection) -> None:
    """And nobody else's."""
    dead, neighbour = uuid4(), uuid4()
    for worker_id in (dead, neighbour):
        rows(
            connection,
            "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)"
            " VALUES (%s, 'x', '{}', '{}', 1, 30, '0')",
            worker_id,
        )
    give_back(engine, dead, CAUSE)
    assert rows(connection, "SELECT id FROM pgtasks.workers") == [(neighbour,)]


def test_the_bell_is_rung(connection: Connection, engine: SyncConnection, dsn: str) -> None:
    """An idle worker, which holds the queue's bell, hears of the tasks at once."""
    dead = uuid4()
    claimed(connection, dead)
    with psycopg.connect(dsn, autocommit=True) as idle:
        idle.execute("LISTEN pgtasks")
        assert fetch_all(idle, ringing.arm_bells(["default"]))
        give_back(engine, dead, CAUSE)
        assert [note.payload for note in idle.notifies(timeout=5, stop_after=1)] == ["default"]


def test_an_outcome_under_way_counts(connection: Connection, engine: SyncConnection, dsn: str) -> None:
    """Its last completion is executed but not committed: the task is passed over, and done in the end."""
    dead = uuid4()
    lease, ids = claimed(connection, dead, 2)
    with psycopg.connect(dsn) as late:
        fetch_all(late, statements.complete(dead, [(ids[0], lease)], [Completed(None)], []))
        assert give_back(engine, dead, CAUSE) == (0, 1)
        late.commit()
    assert give_back(engine, dead, CAUSE) == (1, 0)
    assert states(connection) == [(ids[1], "queued", None)]
    assert rows(connection, "SELECT id, status FROM pgtasks.history") == [(ids[0], "completed")]


def test_an_outcome_that_comes_too_late_is_refused(connection: Connection, engine: SyncConnection) -> None:
    """The task runs again; its dead worker's completion finds another lease, or none."""
    dead = uuid4()
    lease, ids = claimed(connection, dead)
    give_back(engine, dead, CAUSE)
    moved = fetch_one(engine, statements.complete(dead, [(ids[0], lease)], [Completed(None)], []))
    assert moved is not None
    assert moved.ids == []
    assert states(connection) == [(ids[0], "queued", None)]


def beat(worker_id: UUID, lease_id: int) -> Statement[statements.Beat]:
    """Give a heartbeat of a worker for one lease."""
    return statements.beat(worker_id, lease_s=30, lease_ids=[lease_id], running=[], busy=0, draining=False)


def test_a_heartbeat_or_a_claim_under_way_is_seen_by_the_next_look(
    connection: Connection, engine: SyncConnection, dsn: str
) -> None:
    """The lease that it has locked is waited for by nobody, and the one that it adds is found when it is there."""
    dead = uuid4()
    lease, ids = claimed(connection, dead)
    with psycopg.connect(dsn) as late:
        fetch_all(late, beat(dead, lease))
        began = time.monotonic()
        assert give_back(engine, dead, CAUSE) == (0, 0)
        assert time.monotonic() - began < 3
        late.commit()
    _, more = claimed(connection, dead)
    assert give_back(engine, dead, CAUSE) == (2, 2)
    assert states(connection) == [(id, "queued", None) for id in (*ids, *more)]
    renewed = fetch_one(engine, beat(dead, lease))
    assert renewed is not None
    assert renewed.kept == []


def test_a_row_that_cannot_be_changed_holds_up_no_other(connection: Connection, engine: SyncConnection) -> None:
    """Its lease has ended all the same, and is left to the workers' sweeps."""
    dead = uuid4()
    bad_lease, bad = claimed(connection, dead)
    _, good = claimed(connection, dead)
    rows(
        connection,
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF OLD.id = TG_ARGV[0]::bigint THEN RAISE 'no'; END IF; RETURN NEW; END $$",
    )
    rows(
        connection,
        f"CREATE TRIGGER refuse BEFORE UPDATE ON pgtasks.tasks FOR EACH ROW EXECUTE FUNCTION public.refuse('{bad[0]}')",
    )
    try:
        assert give_back(engine, dead, CAUSE) == (1, 1)
    finally:
        rows(connection, "DROP FUNCTION public.refuse() CASCADE")
    assert states(connection) == [(bad[0], "running", bad_lease), (good[0], "queued", None)]
    assert value(connection, "SELECT expires_at < clock_timestamp() FROM pgtasks.leases WHERE id = %s", bad_lease)


def watch(lost: LostWorkers, woken: threading.Event) -> None:
    """Let it do what is due until nothing is left."""

    def settled() -> bool:
        woken.clear()
        lost.work(time.monotonic())
        return not woken.wait(0.01) and lost.next_at() is None and not lost._busy  # noqa: SLF001 - the end of a round

    wait_until(settled, 15)


def test_it_looks_again_for_what_was_under_way(
    connection: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that is committed after the first look is given back by a later one."""
    monkeypatch.setattr(lost_workers, "LOOKS_S", (0.0, 0.2, 0.4))
    woken, dead = threading.Event(), uuid4()
    lost = LostWorkers("none", random.Random(), woken.set)
    lost.add(dead, dsn, CAUSE, time.monotonic())
    lost.work(time.monotonic())
    assert woken.wait(10)
    claimed(connection, dead)
    watch(lost, woken)
    assert [state for _, state, _ in states(connection)] == ["queued"]


def test_a_database_that_is_away_is_asked_again_and_left_in_the_end(
    connection: Connection, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for it meanwhile; at the end it is given a bounded time."""
    woken, dead, other = threading.Event(), uuid4(), uuid4()
    lost = LostWorkers("none", random.Random(), woken.set)
    away = "host=/nowhere dbname=x"
    lost.add(dead, away, CAUSE, time.monotonic())
    began = time.monotonic()
    lost.work(began)
    assert time.monotonic() - began < 1
    assert woken.wait(10)
    again_at = lost.next_at()
    assert again_at is not None
    assert again_at > began
    claimed(connection, other)
    lost.add(other, dsn, CAUSE, time.monotonic())
    began = time.monotonic()
    lost.finish(lambda: began + 0.5)
    assert time.monotonic() - began < 3
    assert [state for _, state, _ in states(connection)] == ["queued"]
    assert [record.getMessage() for record in caplog.records].count("leases not given back") == 1


def test_without_room_for_a_thread_the_look_is_put_off(
    connection: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The supervisor goes on, and looks when there is room again."""
    monkeypatch.setattr(lost_workers, "LOOKS_S", (0.0,))
    woken, dead = threading.Event(), uuid4()
    claimed(connection, dead)
    lost = LostWorkers("none", random.Random(), woken.set)
    lost.add(dead, dsn, CAUSE, time.monotonic())

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        began = time.monotonic()
        lost.work(began)
        again_at = lost.next_at()
    assert again_at is not None
    assert again_at > began
    assert "leases cannot be given back yet" in caplog.text
    watch(lost, woken)
    assert [state for _, state, _ in states(connection)] == ["queued"]
