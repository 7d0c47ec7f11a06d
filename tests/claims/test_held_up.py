"""A worker that could not keep what it claims, or could not start it, does not claim."""

import time

import psycopg

from tests.claims.helpers import until
from tests.claims.rig import Rig
from tests.database import Connection, value
from tests.workers import WorkerProcess


async def test_nothing_is_claimed_while_heartbeats_go_unanswered(dsn: str, connection: Connection) -> None:
    """Its leases would end unrenewed, and a long task be given back again and again."""
    async with Rig(dsn) as rig:
        rig.leases.asked(time.monotonic() - rig.settings.lease_s)
        with psycopg.connect(dsn, autocommit=True) as producer:
            producer.execute("INSERT INTO pgtasks.tasks (name) VALUES ('t')")
        rounds = rig.claimer.progress_at
        await until(lambda: rig.claimer.progress_at > rounds + 0.1, hint="the claim loop stands still")
        assert value(connection, "SELECT count(*) FROM pgtasks.leases") == 0
        rig.leases.renewed([], [], time.monotonic())
        await until(lambda: len(rig.started) == 1, hint="it does not claim again")


def test_a_drain_ends_although_every_handler_ignores_its_stop(dsn: str, connection: Connection) -> None:
    """Its slots never come back; what is left is for a worker that has some."""
    connection.execute(
        "INSERT INTO pgtasks.tasks (name, payload, timeout) "
        "SELECT 'blocks', jsonb_build_object('seconds', 60), '0.2 s' FROM generate_series(1, 2)"
    )
    with WorkerProcess("tests.apps.tasks:app", dsn, "--drain", "--concurrency", "1") as worker:
        assert worker.wait(18) == 1, worker.output()
        assert "drain given up" in worker.output()
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE state = 'queued'") == 2
