"""P7: a COMMIT that waits for a standby ends by no timeout of the server; what it did is unknown, and found out."""

import time
from collections.abc import Iterator

import psycopg
import pytest

from pgtasks import App, DatabaseUnavailable
from pgtasks.embedded import FAST_OPTIONS, PrivateServer
from pgtasks.outcome import Completed
from pgtasks.store.bounded import BoundedConnection
from tests.database import Connection, prepare, rows, value, wait_until
from tests.leases import steps
from tests.leases.writing import Writer

LIMIT_S = 0.5
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name LIKE %s"


class _Stallable:
    """A server whose commits wait, on demand, for a standby that does not exist."""

    def __init__(self, private: PrivateServer) -> None:
        self.dsn = prepare(private)
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        rows(self.connection, "SET synchronous_commit = local")

    def standby(self, names: str) -> None:
        rows(self.connection, f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        rows(self.connection, "SELECT pg_reload_conf()")
        wait_until(lambda: self._seen() == names)

    def _seen(self) -> str:
        with psycopg.connect(self.dsn) as fresh:
            return str(value(fresh, "SHOW synchronous_standby_names"))


@pytest.fixture
def stallable() -> Iterator[_Stallable]:
    """A server of its own, because the setting is the cluster's."""
    options = {**FAST_OPTIONS, "synchronous_commit": "on", "max_wal_senders": "2", "wal_level": "replica"}
    with PrivateServer(options=options) as private:
        made = _Stallable(private)
        yield made
        made.standby("")
        made.connection.close()


async def test_completions_are_offered_again_and_recognised(
    stallable: _Stallable, caplog: pytest.LogCaptureFixture
) -> None:
    """Given up at the deadline and kept; when the standby is back they count once, as written by us."""
    connection: Connection = stallable.connection
    steps.enqueue(connection, 3)
    async with Writer(stallable.dsn, connection, deadline_s=LIMIT_S) as writer:
        tasks = writer.claim(3)
        await writer.connect()
        stallable.standby("nobody")
        writer.offer([(task, Completed("1")) for task in tasks])
        await writer.until(lambda: "outcomes wait for a lock" in caplog.text)
        # Looked at again a second later, they are locked by the first offer, which has not ended.
        until = time.monotonic() + 1.5
        await writer.until(lambda: time.monotonic() > until)
        assert value(connection, WAITING, "pgtasks/finish/%") == 1, "a second offer was written as well"
        assert writer.completer.backlog == 3
        stallable.standby("")
        await writer.until_written()
        assert (writer.completer.written, writer.completer.lost) == (3, 0)
    assert value(connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'") == 3


def test_an_enqueue_ends_and_its_key_says_whether_it_was_done(
    stallable: _Stallable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement's own limit does not fire in a COMMIT; asked again with its key, it gives the same task."""
    monkeypatch.setattr(BoundedConnection, "deadline_s", LIMIT_S)
    app = App(stallable.dsn)
    stallable.standby("nobody")
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="no answer"):
        app.enqueue("work", unique_key="once")
    assert time.monotonic() - began < LIMIT_S + 4.0
    stallable.standby("")
    wait_until(lambda: value(stallable.connection, WAITING, "pgtasks/client") == 0)
    assert not app.enqueue("work", unique_key="once").created
    app.close()
