"""Facts about the database: exact while that is cheap, estimated beyond, never more than a bounded part."""

from collections.abc import Iterator

import psycopg
import pytest
from prometheus_client.registry import CollectorRegistry

from pgtasks.metrics.collector import FactsCollector, page_of
from pgtasks.metrics.facts import DatabaseReader, FactsKeeper
from pgtasks.store import facts
from pgtasks.store.facts import read_facts
from pgtasks.store.session import SyncConnection, connect
from tests.database import Connection, rows
from tests.leases import steps

pytestmark = pytest.mark.pg

RUNNING = (
    "WITH lease AS (INSERT INTO pgtasks.leases (worker_id, expires_at, task_ids)"
    " SELECT gen_random_uuid(), now() + interval '1 minute', array_agg(id) FROM"
    " (SELECT id FROM pgtasks.tasks WHERE queue = %s ORDER BY id LIMIT %s) t RETURNING id, task_ids)"
    " UPDATE pgtasks.tasks t SET state = 'running', lease_id = lease.id, claimed_at = now(), attempt = 1"
    " FROM lease WHERE t.id = ANY (lease.task_ids)"
)


@pytest.fixture
def reader(dsn: str) -> Iterator[SyncConnection]:
    """A connection as the metrics have it."""
    with connect(dsn, "metrics") as connection:
        yield connection


def test_small_tables_are_told_exactly(connection: Connection, reader: SyncConnection, dsn: str) -> None:
    """Every status, pauses, dead letters, live workers, overdue schedules, and an open transaction."""
    rows(connection, "SELECT pgtasks.enqueue('a', queue => 'mails') FROM generate_series(1, 5)")
    rows(connection, RUNNING, "mails", 2)
    rows(connection, "SELECT pgtasks.enqueue('a', queue => 'mails', delay => '1 hour')")
    rows(
        connection,
        "INSERT INTO pgtasks.tasks (name, queue, run_at, attempt) VALUES"
        " ('a', 'mails', now() + interval '1 hour', 1), ('a', 'old', now() - interval '90 s', 0)",
    )
    rows(connection, "SELECT pgtasks.enqueue('a', queue => 'old', priority => 9)")
    rows(connection, "SELECT pgtasks.pause('old')")
    rows(
        connection,
        "INSERT INTO pgtasks.dead_letters (id, queue, name, payload, attempt, priority, run_at, created_at,"
        " finished_at, reason) SELECT g, 'old', 'a', '{}', 1, 0, now(), now(), now(), 'exhausted'"
        " FROM generate_series(1, 3) g",
    )
    rows(
        connection,
        "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)"
        " VALUES (gen_random_uuid(), 'w', '{mails}', '{a}', 1, 3000, '1')",
    )
    rows(connection, "INSERT INTO pgtasks.schedules (name, expression, task) VALUES ('s', '@hourly', 'a')")
    rows(connection, "UPDATE pgtasks.schedules SET next_fire = now() - interval '10 min'")
    with psycopg.connect(dsn) as other:
        rows(other, "SELECT txid_current()")
        found = read_facts(reader)
    mails, old = found.queues["mails"], found.queues["old"]
    assert mails.tasks == {"scheduled": 1, "queued": 3, "running": 2, "retrying": 1}
    assert (mails.paused, mails.workers, mails.dead_letters) == (False, 1, 0)
    assert (old.paused, old.workers, old.dead_letters) == (True, 0, 3)
    # C-05: also while those of a higher priority starve it.
    assert 90 <= old.oldest_waiting_s < 150
    assert found.schedules_overdue == 1
    assert 600 <= found.schedules_overdue_s < 660
    assert 0 < found.oldest_transaction_s < 60


def test_dead_letters_of_killed_workers_are_among_those_of_the_last_hour(
    connection: Connection, reader: SyncConnection
) -> None:
    """Their lease expired in the last attempt, so a sweep buried them; what is older does not count."""
    steps.enqueue(connection, 2, max_attempts=1)
    (lease_id,) = {task.lease_id for task in steps.claim(connection, steps.worker_id(), 2)}
    steps.expire(connection, lease_id)
    assert steps.sweep(connection).dead == 2
    rows(
        connection,
        "INSERT INTO pgtasks.dead_letters (id, queue, name, payload, attempt, priority, run_at, created_at,"
        " finished_at, reason) SELECT g, 'default', 'a', '{}', 1, 0, now(), now(), now() - interval '61 min',"
        " 'exhausted' FROM generate_series(1, 3) g",
    )
    found = read_facts(reader).queues["default"]
    assert (found.dead_letters, found.dead_letters_last_hour) == (5, 2)


def test_an_empty_database_has_facts(reader: SyncConnection) -> None:
    """Zeros, no error."""
    found = read_facts(reader)
    assert found.queues == {}
    assert (found.schedules_overdue, found.schedules_overdue_s) == (0, 0.0)


def test_what_is_large_is_estimated(fresh_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small queue beside it stays exact, and so does what runs."""
    monkeypatch.setattr(facts, "PAGES", 80)
    monkeypatch.setattr(facts, "COUNTED_MAX", 200)
    with psycopg.connect(fresh_database, autocommit=True) as connection, connect(fresh_database, "metrics") as reader:
        rows(connection, "SELECT pgtasks.enqueue('a', queue => 'big') FROM generate_series(1, 8000)")
        rows(connection, "SELECT pgtasks.enqueue('a', queue => 'small') FROM generate_series(1, 7)")
        rows(connection, RUNNING, "big", 150)
        found = read_facts(reader)
    assert found.queues["small"].tasks == {"scheduled": 0, "queued": 7, "running": 0, "retrying": 0}
    assert found.queues["big"].tasks["running"] == 150
    assert found.queues["big"].tasks["queued"] == pytest.approx(7850, rel=0.1)


def test_hundreds_of_queues_make_a_bounded_page(fresh_database: str) -> None:
    """B-03: producers invent names of queues; the page does not grow with them, and the sum stays."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        rows(
            connection,
            "INSERT INTO pgtasks.tasks (name, queue) SELECT 'a', 'q' || (10000 + g) FROM generate_series(1, 600) g",
        )
        rows(connection, "INSERT INTO pgtasks.tasks (name, queue) VALUES ('a', 'q\u202e\"} 1' || chr(92))")
    registry = CollectorRegistry()
    with FactsKeeper(DatabaseReader(fresh_database, pooler="none")) as keeper:
        registry.register(FactsCollector(keeper))
        _, page = page_of(registry, "")
    queued = [line for line in page.decode().splitlines() if 'status="queued"' in line]
    assert len(queued) == facts.QUEUES_MAX + 1
    assert sum(float(line.rpartition(" ")[2]) for line in queued) == 601


def test_no_label_hides_how_long_the_oldest_task_has_waited(fresh_database: str) -> None:
    """In a queue beyond those that have one: `other` has its age, and so has the maximum, but not of a paused one."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        rows(
            connection,
            "INSERT INTO pgtasks.tasks (name, queue, run_at) SELECT 'a', 'q' || (10000 + g),"
            " now() - CASE g WHEN 250 THEN interval '1 hour' WHEN 300 THEN interval '1 day' ELSE '1 s' END"
            " FROM generate_series(1, 300) g",
        )
        rows(connection, "SELECT pgtasks.pause('q10300')")
    registry = CollectorRegistry()
    with FactsKeeper(DatabaseReader(fresh_database, pooler="none")) as keeper:
        registry.register(FactsCollector(keeper))
        found = {
            family.name: {sample.labels.get("queue"): sample.value for sample in family.samples}
            for family in registry.collect()
        }
    by_queue, oldest = found["pgtasks_queue_oldest_waiting_seconds"], found["pgtasks_oldest_waiting_seconds"][None]
    assert len(by_queue) == facts.QUEUES_MAX + 1
    assert by_queue["q10001"] < 1800
    assert by_queue["other"] >= 86400
    assert 3600 <= oldest < 7200
