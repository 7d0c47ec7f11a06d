"""What a worker does for all at its start and now and then; it must not keep a worker from starting."""

import random

import psycopg
import pytest

from pgtasks.engine import maintenance
from pgtasks.engine.maintenance import Tidier
from pgtasks.store.link import Link
from tests.database import value

TODAY = "SELECT to_regclass('pgtasks.history_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL"


async def test_a_reader_of_history_does_not_keep_a_worker_from_starting(fresh_database: str) -> None:
    """ATTACH waits for a reader of the default partition, as pg_dump is; rows go there meanwhile."""
    link = Link(fresh_database, "finish")
    with psycopg.connect(fresh_database, autocommit=True) as owner, psycopg.connect(fresh_database) as reader:
        for (name,) in owner.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'pgtasks.history'::regclass"
        ).fetchall():
            if "_default" not in name:
                owner.execute(f"DROP TABLE {name}".encode())
        reader.execute("SELECT count(*) FROM pgtasks.history")
        owner.execute(
            "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version, last_seen_at) "
            "VALUES (gen_random_uuid(), 'gone', '{}', '{}', 1, 30, '0', now() - interval '2 hours')"
        )
        try:
            assert await Tidier(link, random.Random(1)).tidy() < 100
            assert not value(owner, TODAY)
            assert value(owner, "SELECT count(*) FROM pgtasks.workers") == 0
            reader.rollback()
            assert await Tidier(link, random.Random(1)).tidy() > 100
            assert value(owner, TODAY)
        finally:
            await link.close()


async def test_fires_that_cannot_be_pruned_do_not_keep_a_worker_from_starting(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start prunes one batch; a refusal is only reported, and tried again soon."""
    monkeypatch.setattr(maintenance, "FIRES_BATCH", 2)
    link = Link(fresh_database, "finish")
    count = "SELECT count(*) FROM pgtasks.schedule_fires"
    with psycopg.connect(fresh_database, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO pgtasks.schedule_fires (schedule, fire_time, outcome)"
            " SELECT 'gone', now() - make_interval(days => 40 + n), 'missed' FROM generate_series(1, 7) AS n"
        )
        try:
            tidier = Tidier(link, random.Random(1))
            assert await tidier.tidy() > 100
            assert value(owner, count) == 5
            owner.execute(
                'CREATE TABLE holder (s text COLLATE "C", f timestamptz,'
                " FOREIGN KEY (s, f) REFERENCES pgtasks.schedule_fires)"
            )
            owner.execute("INSERT INTO holder SELECT schedule, fire_time FROM pgtasks.schedule_fires")
            assert await tidier.tidy() < 100
            owner.execute("DROP TABLE holder")
            await tidier.tidy_later()
            await tidier.tidy_later()
            assert value(owner, count) == 0
        finally:
            await link.close()
