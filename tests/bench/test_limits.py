"""Nothing that the harness waits for can keep it for ever: what takes too long is ended, and the run is not valid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from bench import fleet, producers, worker
from bench.database import Bench
from bench.producers import Limit
from pgtasks import schema
from tests.database import wait_until

pytestmark = pytest.mark.pg
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE %s"


@pytest.fixture
def bench(server: Any) -> Iterator[Bench]:
    """The test server's own database, migrated, as the harness has it."""
    schema.migrate(server.private.dsn)
    with psycopg.connect(server.private.dsn, autocommit=True) as connection:
        yield Bench(server.private, connection)


def test_a_worker_that_does_not_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, and its sessions are gone."""
    monkeypatch.setattr(worker, "DRAIN_S", 0.1)
    monkeypatch.setattr(worker, "command", lambda *_: fleet.worker("bench.app:app", concurrency=1))
    bench.fill(1)
    with pytest.raises(AssertionError, match=r"had not ended after 0\.1 s"):
        worker.run(bench, 1)
    wait_until(lambda: not bench.value(_SESSIONS, "pgtasks/%"))


def test_a_worker_that_fails_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the end of its log."""
    monkeypatch.setattr(worker, "command", lambda *_: fleet.worker("bench.no_such_app:app", concurrency=1))
    with pytest.raises(AssertionError, match="no_such_app"):
        worker.run(bench, 1)


def test_producers_that_do_not_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the time that they were told to run for, and some more."""
    monkeypatch.setattr(producers, "_LIMIT_S", 0.1)
    with pytest.raises(AssertionError, match=r"had not ended after 0\.3 s"):
        producers.run(bench, Limit(seconds=0.2), clients=1, statement="SELECT pg_sleep(60)")
