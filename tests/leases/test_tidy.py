"""What a worker does for all at its start and now and then; it must not keep a worker from starting."""

import random

import psycopg

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
