"""Workers write what their code defines, fire it, and tell handlers of their slot."""

from __future__ import annotations

import json
import signal
from datetime import UTC

import pytest

from pgtasks.context import Context
from tests.database import Connection, rows, value, wait_until
from tests.workers import WorkerProcess

pytestmark = [pytest.mark.pg, pytest.mark.timeout(60)]
APP = "tests.apps.scheduled:app"


def results(connection: Connection) -> list[dict[str, str | None]]:
    """Return what the handler has noted."""
    found = rows(connection, "SELECT result FROM pgtasks.history WHERE status = 'completed' ORDER BY id")
    return [result for (result,) in found]


def test_a_worker_writes_and_fires_them(dsn: str, connection: Connection) -> None:
    """Each task knows its schedule and its slot; what a person starts has no slot."""
    with WorkerProcess(APP, dsn) as worker:
        worker.wait_ready()
        wait_until(lambda: len(results(connection)) >= 2)
        rows(
            connection,
            "INSERT INTO pgtasks.tasks (name, payload, headers) VALUES ('note', %s, %s), ('note', %s, NULL)",
            '{"word": "mine"}',
            '{"pgtasks.schedule": "ticks"}',
            '{"word": "alone"}',
        )
        wait_until(lambda: {"mine", "alone"} <= {one["word"] for one in results(connection)})
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert rows(
        connection,
        "SELECT name, expression, timezone, payload, overlap, extract(epoch FROM jitter)::int, source, deployment"
        " FROM pgtasks.schedules ORDER BY name",
    ) == [
        ("new year", "0 0 1 1 *", "Asia/Tokyo", {"word": "year"}, "allow", 3600, "code", APP),
        ("ticks", "@every 1s", "UTC", {"word": "tick"}, "skip", 0, "code", APP),
    ]
    by_word = {one["word"]: one for one in results(connection)}
    assert by_word["mine"] == {"schedule": "ticks", "slot": None, "word": "mine"}
    assert by_word["alone"] == {"schedule": None, "slot": None, "word": "alone"}
    slots = [one["slot"] for one in results(connection) if one["word"] == "tick"]
    fired = rows(connection, "SELECT fire_time FROM pgtasks.schedule_fires WHERE outcome = 'fired' ORDER BY 1")
    assert slots == [slot.astimezone(UTC).isoformat() for (slot,) in fired][: len(slots)]


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_worker_without_scheduler_writes_them_and_fires_none(dsn: str, connection: Connection, how: str) -> None:
    """Another process does; the tasks run here."""
    flags = ["--no-scheduler"] if how == "flag" else []
    env = {"PGTASKS_SCHEDULER": "false"} if how == "variable" else {}
    with WorkerProcess(APP, dsn, *flags, env=env) as worker:
        worker.wait_ready()
        assert value(connection, "SELECT count(*) FROM pgtasks.schedules WHERE next_fire IS NULL") == 2
        rows(connection, "INSERT INTO pgtasks.tasks (name, payload) SELECT 'note', '{\"word\": \"x\"}'")
        wait_until(lambda: results(connection))
        rows(connection, "SELECT pg_sleep(1.5)")
        assert value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") == 0
        assert value(connection, "SELECT count(*) FROM pgtasks.schedules WHERE next_fire IS NULL") == 2


@pytest.mark.parametrize(
    ("headers", "schedule", "slot"),
    [
        ({}, None, None),
        ({"pgtasks.schedule": "a", "pgtasks.fire_time": "2025-01-01T02:00:00+02:00"}, "a", "2025-01-01T00:00:00+00:00"),
        ({"pgtasks.schedule": 7, "pgtasks.fire_time": 7}, None, None),
    ],
)
def test_a_context_reads_its_headers(headers: dict[str, object], schedule: str | None, slot: str | None) -> None:
    """The slot is in UTC, whatever time zone the session had that wrote it."""
    context = Context.detached("t")
    context.headers = json.loads(json.dumps(headers))
    assert context.schedule == schedule
    assert (context.fire_time.isoformat() if context.fire_time else None) == slot


@pytest.mark.parametrize("text", ["yesterday", "", "2025-01-01T00:00:00", "infinity", "0001-01-01T00:00:00+14:00"])
def test_what_no_schedule_wrote_is_no_slot(text: str) -> None:
    """Headers are open to everybody, and a handler that asks must not fail for it."""
    context = Context.detached("t")
    context.headers = {"pgtasks.fire_time": text}
    assert context.fire_time is None
