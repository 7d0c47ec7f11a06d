"""Every statement of ours ends at a deadline on this side, whatever the server or the network does."""

import asyncio
import time
from collections.abc import Callable

import pytest

from pgtasks import App, DatabaseUnavailable
from pgtasks.store import conninfo, session
from pgtasks.store.bounded import DEADLINE_S, BoundedAsyncConnection, BoundedConnection
from pgtasks.store.session import Statement
from tests.cli.conftest import Run
from tests.database import Connection, value
from tests.proxy import Proxy

LIMIT_S = 0.5
# What it may take longer on a busy machine: still less than psycopg's own way out of a silent connection.
LATE_S = 4.0
LIMITS: Statement[tuple[str, str]] = Statement(
    "SELECT current_setting('statement_timeout'), current_setting('lock_timeout')"
)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let our deadline be short."""
    monkeypatch.setattr(BoundedConnection, "deadline_s", LIMIT_S)
    monkeypatch.setattr(BoundedAsyncConnection, "deadline_s", LIMIT_S)


def _work() -> None: ...


def _many(app: App) -> object:
    return app.enqueue_many([App().task(name="work")(_work).prepare()] * 100)


def _later(app: App) -> object:
    async def both() -> None:
        try:
            await app.aenqueue("work")
        finally:
            await app.aclose()

    return asyncio.run(both())


WAYS: dict[str, Callable[[App], object]] = {
    "enqueue": lambda app: app.enqueue("work"),
    "aenqueue": _later,
    "enqueue_many": _many,
}


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("way", WAYS)
def test_an_enqueue_without_an_answer_ends(way: str, proxy: Proxy, connection: Connection) -> None:
    """The connection is alive and silent: an error at the deadline that says what is unknown; the next one works."""
    app = App(proxy.dsn)
    proxy.withhold_reply("client")
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match=r"no answer within 0.5 s.*unknown"):
        WAYS[way](app)
    assert LIMIT_S <= time.monotonic() - began < LIMIT_S + LATE_S
    before = value(connection, "SELECT count(*) FROM pgtasks.tasks")
    WAYS[way](app)
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") - before == (100 if way == "enqueue_many" else 1)
    app.close()


async def test_a_cancelled_enqueue_ends_at_once(proxy: Proxy, dsn: str) -> None:
    """Alone psycopg would take ten seconds for it, with a cancel that cannot arrive and a second wait."""
    app = App(proxy.dsn)
    await app.aenqueue("work")
    proxy.black_hole()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(app.aenqueue("work"), LIMIT_S)
    assert time.monotonic() - began < LIMIT_S + LATE_S
    proxy.heal()
    assert (await app.aenqueue("work")).created
    await app.aclose()


@pytest.mark.usefixtures("soon")
def test_a_command_without_an_answer_ends(proxy: Proxy, offline: Run) -> None:
    """With the exit code of an unreachable database."""
    proxy.withhold_reply("cli")
    began = time.monotonic()
    ran = offline("tasks", "list", "--dsn", proxy.dsn)
    assert time.monotonic() - began < LIMIT_S + LATE_S
    assert ran.code == 4
    assert "no answer within 0.5 s" in ran.err


@pytest.mark.usefixtures("soon")
def test_looking_at_the_schema_ends_as_well(proxy: Proxy, offline: Run) -> None:
    """A worker's first question, and that of `migrate --check`."""
    proxy.withhold_reply("migrate")
    ran = offline("migrate", "--check", "--dsn", proxy.dsn)
    assert ran.code == 4
    assert "no answer within 0.5 s" in ran.err


def test_the_servers_limits_come_first(dsn: str) -> None:
    """Where the server answers it ends the statement itself, and says why; its locks before its statements."""
    with session.connect(dsn, "client") as connection:
        assert session.fetch_all(connection, LIMITS) == [("10s", "5s")]
    assert DEADLINE_S > 10


def test_the_network_is_watched_from_both_ends(dsn: str) -> None:
    """N1, N-04: on each side keepalives and a limit for what is not acknowledged; what the address says wins."""
    for_listen = conninfo.complete(dsn, "listen")
    for ours in ("keepalives_idle=5", "tcp_user_timeout=10000", "connect_timeout=5"):
        assert ours in for_listen
    assert "-c tcp_keepalives_idle=30" in for_listen
    assert "-c tcp_user_timeout=30000" in for_listen
    given = conninfo.complete(f"{dsn}&tcp_user_timeout=7&keepalives_idle=8", "claim")
    assert "tcp_user_timeout=7 " in f"{given} "
    assert "keepalives_idle=8 " in f"{given} "
