"""Where notifications do not arrive, a worker polls; behind a transaction pooler it keeps nothing in a session."""

import logging
import time
from typing import Any

import psycopg
import pytest

from pgtasks.engine import bell
from pgtasks.store import ringing, statements
from pgtasks.store.session import Statement
from tests.claims.helpers import avalue, until
from tests.claims.rig import Rig
from tests.database import Connection, rows, value
from tests.workers import WorkerProcess

Async = psycopg.AsyncConnection[Any]
INSERT = "INSERT INTO pgtasks.tasks (name) VALUES ('t') RETURNING id"


async def test_a_worker_that_does_not_hear_polls(
    dsn: str, aconnection: Async, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """LISTEN is accepted and nothing comes, as through a pooler: said once, no bell is ever armed."""
    monkeypatch.setattr(bell, "HEARING_TEST_S", 0.1)
    monkeypatch.setattr(ringing, "notify", lambda _: statements.clock())
    caplog.set_level(logging.WARNING)
    async with Rig(dsn) as rig:
        await until(lambda: "notifications do not arrive" in caplog.text)
        for turn in range(1, 6):
            assert not rig.bell.armed
            task_id = await avalue(aconnection, INSERT)
            inserted = time.monotonic()
            await rig.ran(turn)
            assert rig.started[task_id] - inserted < 0.7
    assert caplog.text.count("notifications do not arrive") == 1


async def test_hearing_is_tried_again(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that failed, because the server was slow or the way there has changed, is not the last word."""
    monkeypatch.setattr(bell, "HEARING_TEST_S", 0.1)
    monkeypatch.setattr(bell, "DEAF_RETRY_S", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(ringing, "notify", lambda _: statements.clock())
        async with Rig(dsn) as rig:
            await until(lambda: rig.claimer.rescans > 5)
            assert not rig.bell.hears
            patch.undo()
            await rig.asleep()


async def test_no_bell_is_armed_before_hearing_was_proven(dsn: str, aconnection: Async) -> None:
    """Otherwise a pooler would keep the lock for whoever gets that server connection next."""
    rig = Rig(dsn)
    async with rig:
        assert await rig.bell.fall_asleep(["default"]) is bell.Sleep.DEAF
        assert await avalue(aconnection, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_pooler_mode_keeps_nothing_in_a_session(dsn: str, connection: Connection) -> None:
    """No LISTEN, no prepared statement, no advisory lock, no setting: tasks, retries and delays work."""
    with WorkerProcess("tests.apps.basic:app", dsn, "--pooler", "transaction") as process:
        process.wait_ready()
        ids = [value(connection, "SELECT pgtasks.enqueue('flaky', '{\"n\": 1}')") for _ in range(20)]
        ids.append(value(connection, "SELECT pgtasks.enqueue('echo', delay => '0.5 s')"))
        done = "SELECT count(*) FROM pgtasks.history WHERE id = ANY(%s) AND status = 'completed'"
        await until(lambda: value(connection, done, ids) == len(ids))
        parts = rows(
            connection,
            "SELECT DISTINCT split_part(application_name, '/', 2) FROM pg_stat_activity"
            " WHERE application_name LIKE 'pgtasks/%'",
        )
        assert {part for (part,) in parts} == {"claim", "finish", "heartbeat", "schedule"}
        assert rows(connection, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'") == []
        assert rows(connection, "SELECT 1 FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'") == []
        assert "notifications do not arrive" not in process.output()


async def test_pooler_mode_prepares_nothing_and_sets_nothing(dsn: str, aconnection: Async) -> None:
    """Seen from inside the sessions that a worker used for a while."""
    async with Rig(dsn, pooler="transaction") as rig:
        for _ in range(20):
            await avalue(aconnection, INSERT)
        await rig.ran(20)
        for link in (rig.link, rig.finish_link):
            statement: Statement[tuple[int, ...]] = Statement(
                "SELECT (SELECT count(*) FROM pg_prepared_statements),"
                " (SELECT count(*) FROM pg_settings WHERE source = 'client' AND name IN ('enable_seqscan', 'jit')),"
                " (SELECT count(*) FROM pg_settings WHERE source = 'session')"
            )
            assert await link.fetch_all(statement) == [(0, 0, 0)]
