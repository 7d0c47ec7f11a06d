"""`status`, `top` and the facts on 1,000,000 waiting and 1,000,000 finished tasks: what they take, with -s."""

import statistics
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from rich.console import Console

from pgtasks.cli import status_screen, top_screen
from pgtasks.cli.top_state import View, absorb
from pgtasks.store.facts import read_facts
from pgtasks.store.overview import read_overview
from pgtasks.store.session import SyncConnection, connect
from pgtasks.store.watching import read_look
from tests.database import Server, rows
from tests.long import LONG

pytestmark = [LONG, pytest.mark.pg, pytest.mark.slow, pytest.mark.timeout(300)]
ROWS = 1_000_000
ROUNDS = 15


@pytest.fixture(scope="module")
def million(server: Server) -> Iterator[str]:
    """The address of a database that has them, some of them running, and 10,000 dead letters."""
    address = server.create(migrated=True)
    with psycopg.connect(address, autocommit=True) as owner:
        rows(
            owner,
            "INSERT INTO pgtasks.tasks (name, queue, run_at) SELECT 'a', CASE WHEN g %% 1000 = 0 THEN 'small'"
            " WHEN g %% 100 = 0 THEN 'middle' ELSE 'big' END, now() - interval '1 hour'"
            " FROM generate_series(1, %s) g",
            ROWS,
        )
        rows(
            owner,
            "INSERT INTO pgtasks.history (id, created_at, run_at, attempt, priority, status, queue, name, payload,"
            " finished_at) SELECT g, now(), now(), 1, 0, 'completed', 'big', 'a', '{}',"
            " now() - interval '50 minutes' + g * interval '3 ms' FROM generate_series(1, %s) g",
            ROWS,
        )
        rows(
            owner,
            "INSERT INTO pgtasks.dead_letters (id, queue, name, payload, attempt, priority, run_at, created_at, reason)"
            " SELECT g, 'middle', 'a', '{}', 1, 0, now(), now(), 'exhausted' FROM generate_series(1, 10000) g",
        )
        rows(
            owner,
            "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)"
            " VALUES (gen_random_uuid(), 'w', '{big,middle,small}', '{a}', 100, 3000, '1')",
        )
        rows(
            owner,
            "WITH lease AS (INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids) SELECT w.id,"
            " now() + interval '1 hour', ARRAY(SELECT id FROM pgtasks.tasks ORDER BY id LIMIT 100)"
            " FROM pgtasks.workers w RETURNING id, task_ids) UPDATE pgtasks.tasks t SET state = 'running',"
            " lease_id = lease.id, claimed_at = now(), attempt = 1 FROM lease WHERE t.id = ANY (lease.task_ids)",
        )
        rows(owner, "VACUUM ANALYZE")
    yield address
    server.drop(address)


def measure(what: str, connection: SyncConnection, work: Callable[[], object]) -> float:
    """Print what the work takes, and return the median of its CPU on both sides in milliseconds.

    On a quiet machine that is the time it takes; on a busy one the clock tells of the others as well.
    """
    clock = Path(f"/proc/{connection.info.backend_pid}/schedstat")
    took_ms, server_ms, client_ms = list[float](), list[float](), list[float]()
    for _ in range(ROUNDS):
        began, before, before_here = time.perf_counter(), _cpu_ms(clock), time.thread_time()
        work()
        client_ms.append((time.thread_time() - before_here) * 1000)
        took_ms.append((time.perf_counter() - began) * 1000)
        server_ms.append(_cpu_ms(clock) - before)
    cpu_ms = statistics.median(map(sum, zip(server_ms, client_ms, strict=True)))
    print(  # noqa: T201 - the figures, with -s
        f"\n{what}: by the clock median {statistics.median(took_ms):.1f} ms ({min(took_ms):.1f} to {max(took_ms):.1f})"
        f"; CPU {cpu_ms:.1f} ms, of this {statistics.median(server_ms):.1f} of the server"
    )
    return cpu_ms


def _cpu_ms(clock: Path) -> float:
    return int(clock.read_text().split()[0]) / 1e6 if clock.exists() else 0.0


def test_status_takes_less_than_300_ms(million: str) -> None:
    """Reading and drawing."""
    console = Console(width=80, file=StringIO())
    with connect(million, "cli") as connection:
        took_ms = measure("status", connection, lambda: console.print(status_screen.screen(read_overview(connection))))
    assert took_ms < 300


def test_top_takes_less_than_300_ms(million: str) -> None:
    """A first look, which reads more than those that follow, and drawing it."""
    console = Console(width=80, file=StringIO())

    def look() -> None:
        picture = absorb(None, read_look(connection, None))
        console.print(top_screen.screen(picture, View(), interval_s=2, height=24))

    with connect(million, "cli") as connection:
        assert measure("top", connection, look) < 300


def test_facts_take_less_than_10_ms(million: str) -> None:
    """And they are near: what runs and what is small is exact."""
    with connect(million, "metrics") as connection:
        took_ms = measure("facts", connection, lambda: read_facts(connection))
        found = read_facts(connection).queues
    assert found["small"].tasks["queued"] == ROWS // 1000
    assert sum(queue.tasks["running"] for queue in found.values()) == 100
    assert found["big"].tasks["queued"] == pytest.approx(ROWS * 0.99, rel=0.05)
    assert took_ms < 10
