"""`pgtasks scheduler`: fires what is due and nothing else, hears changes, stops when told to."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.database import Connection, Server, rows, value, wait_until
from tests.workers import environment, program, start

pytestmark = [pytest.mark.pg, pytest.mark.timeout(60)]


class Scheduler:
    """A `pgtasks scheduler` process."""

    def __init__(self, dsn: str, log: Path, *flags: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = start([program(), "scheduler", *flags], environment(dsn, "worker"), output.fileno())

    def wait_for(self, text: str) -> None:
        """Wait until it has printed a text."""
        wait_until(lambda: text in self.log.read_text(), 15, hint=self.log.read_text)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(15)


@pytest.fixture
def scheduler(dsn: str, tmp_path: Path) -> Iterator[Scheduler]:
    """Give one that has started."""
    made = Scheduler(dsn, tmp_path / "log", "--log-level", "debug")
    try:
        made.wait_for("scheduler started")
        made.wait_for("listening")
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def test_it_hears_of_a_schedule_and_fires_each_slot_once(scheduler: Scheduler, connection: Connection) -> None:
    """It was asleep, for up to fifteen seconds, when the row came; no task runs, no worker is registered."""
    idle = (
        "SELECT max(now() - state_change) > interval '2 s' FROM pg_stat_activity"
        " WHERE application_name LIKE 'pgtasks/schedule/%' AND datname = current_database()"
    )
    wait_until(lambda: value(connection, idle), 6)
    rows(connection, "INSERT INTO pgtasks.schedules (name, expression, task) VALUES ('a', '@every 1s', 't')")
    wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") >= 3, 6)
    assert scheduler.stop() == 0
    assert "scheduler stopped" in scheduler.log.read_text()
    fires = rows(connection, "SELECT fire_time, outcome FROM pgtasks.schedule_fires ORDER BY 1")
    assert {outcome for _, outcome in fires} == {"fired"}
    assert (fires[-1][0] - fires[0][0]).total_seconds() == len(fires) - 1
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE attempt = 0") == len(fires)
    assert value(connection, "SELECT count(*) FROM pgtasks.workers") == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_with_0(scheduler: Scheduler, connection: Connection, number: signal.Signals) -> None:
    """Its sessions are gone then."""
    sessions = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgtasks/%' AND datname = current_database()"
    )
    assert value(connection, sessions) >= 2
    assert scheduler.stop(number) == 0
    wait_until(lambda: value(connection, sessions) == 0)
    assert "Traceback" not in scheduler.log.read_text()


def test_it_survives_a_lost_database(scheduler: Scheduler, connection: Connection) -> None:
    """It connects again, and fires what was due meanwhile."""
    ended = value(
        connection,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name LIKE 'pgtasks/%%' AND pid <> pg_backend_pid()",
    )
    assert ended >= 2
    rows(connection, "INSERT INTO pgtasks.schedules (name, expression, task) VALUES ('a', '@every 1s', 't')")
    wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") >= 2, 20)
    assert scheduler.stop() == 0


def test_behind_a_pooler_it_looks_by_itself(dsn: str, connection: Connection, tmp_path: Path) -> None:
    """It hears nothing, and sleeps for a second at most."""
    made = Scheduler(dsn, tmp_path / "log", "--pooler", "transaction")
    try:
        made.wait_for("scheduler started")
        rows(connection, "INSERT INTO pgtasks.schedules (name, expression, task) VALUES ('a', '@every 1s', 't')")
        wait_until(lambda: value(connection, "SELECT count(*) FROM pgtasks.schedule_fires") >= 2, 8)
        assert made.stop() == 0
    finally:
        made.process.kill()
        made.process.wait()


def test_without_a_schema_it_is_5(offline: Run, server: Server) -> None:
    """As for a worker."""
    dsn = server.create(migrated=False)
    try:
        ran = offline("scheduler", "--dsn", dsn)
        assert ran.code == 5
        assert "pgtasks migrate" in ran.err
    finally:
        server.drop(dsn)


def test_without_a_database_it_is_4(offline: Run) -> None:
    """As for a worker."""
    assert offline("scheduler", "--dsn", "postgresql://127.0.0.1:1/none").code == 4


def test_a_bad_option_is_2(offline: Run) -> None:
    """The message names it."""
    ran = offline("scheduler", "--dsn", "dbname=x", "--log-format", "xml")
    assert ran.code == 2
    assert "--log-format" in ran.err
