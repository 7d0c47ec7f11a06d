"""D-06 and its kind: the connections behind enqueue survive forks, threads, loops and restarts."""

import asyncio
import contextlib
import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from pgtasks import App, DatabaseUnavailable
from tests.database import Connection, rows, value, wait_until
from tests.enqueue.conftest import Live
from tests.workers import environment

CLIENTS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgtasks/client' AND datname = current_database()"
)

FORKING = """
import asyncio, os, sys
from pgtasks import App
app = App()
app.enqueue("parent", {})

async def again(name):
    await app.aenqueue(name)

asyncio.run(again("parent loop"))
children = []
for number in range(2):
    pid = os.fork()
    if pid == 0:
        app.enqueue("child", {})
        asyncio.run(again("child loop"))
        app.close()
        os._exit(0)
    children.append(pid)
for number in range(20):
    app.enqueue("parent", {})
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
for number in range(5):
    app.enqueue("parent", {})
sys.exit(max(codes))
"""


def run_program(text: str, dsn: str) -> "subprocess.CompletedProcess[str]":
    """Run a program that uses PGTASKS_DSN, with every warning on."""
    command = [sys.executable, "-X", "dev", "-c", text]
    env = environment(dsn, "producer")
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=15, check=False)


def test_parent_and_forked_children_enqueue(dsn: str, connection: Connection) -> None:
    """D-06: no shared connection, no hang, nothing lost, and nothing on standard error."""
    done = run_program(FORKING, dsn)
    assert (done.returncode, done.stderr) == (0, "")
    found = rows(connection, "SELECT name, count(*) FROM pgtasks.tasks GROUP BY name ORDER BY name")
    assert found == [("child", 2), ("child loop", 2), ("parent", 26), ("parent loop", 1)]


@pytest.mark.parametrize("ending", ["", "app.close()", "sys.exit(0)"])
def test_a_program_that_ends_is_quiet(dsn: str, live: Live, ending: str) -> None:
    """Whether or not it closes the app: no warning, no wait."""
    text = f"""
import sys
from pgtasks import App
app = App()
app.enqueue("work")
{ending}
"""
    done = run_program(text, dsn)
    assert (done.returncode, done.stderr) == (0, "")
    assert live.count() == 1


def test_threads_share_the_connections(app: App, connection: Connection, live: Live) -> None:
    """Fifty threads, at most ten connections."""
    with ThreadPoolExecutor(50) as pool:
        assert len({added.id for added in pool.map(lambda _: app.enqueue("work"), range(500))}) == 500
    assert live.count() == 500
    assert value(connection, CLIENTS) <= 10


def test_each_event_loop_closes_its_connections(app: App, connection: Connection, live: Live) -> None:
    """A program that calls asyncio.run for every enqueue does not run out of connections."""

    async def enqueue() -> None:
        await asyncio.gather(*(app.aenqueue("work") for _ in range(3)))

    for _ in range(5):
        asyncio.run(enqueue())
    assert live.count() == 15
    wait_until(lambda: value(connection, CLIENTS) == 0)


def test_a_loop_that_ends_without_a_goodbye_is_forgotten_by_the_next(
    app: App, connection: Connection, live: Live
) -> None:
    """Its connections are closed when another loop enqueues."""
    for number in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(app.aenqueue("work"))
        loop.close()
        del loop
        gc.collect()
        assert live.count() == number + 1
    wait_until(lambda: value(connection, CLIENTS) == 1)


async def test_aclose_closes_and_the_next_use_opens_again(app: App, connection: Connection, live: Live) -> None:
    """The same for threads."""
    for number in range(2):
        await app.aenqueue("work")
        await app.aclose()
        app.enqueue("work")
        app.close()
        assert live.count() == 2 * number + 2
        await asyncio.to_thread(wait_until, lambda: value(connection, CLIENTS) == 0)


def test_after_a_restart_of_the_server_a_live_connection_is_handed_out(
    app: App, connection: Connection, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lay unused is tried first."""
    monkeypatch.setattr("pgtasks.store.pools.UNTRIED_S", 0.0)
    app.enqueue("work")
    asyncio.run(_twice_with_a_cut(app, connection))
    rows(connection, f"SELECT pg_terminate_backend(pid, 5000) FROM ({CLIENTS.replace('count(*)', 'pid')}) x")
    app.enqueue("work")
    assert live.count() == 4


async def _twice_with_a_cut(app: App, connection: Connection) -> None:
    await app.aenqueue("work")
    rows(connection, f"SELECT pg_terminate_backend(pid, 5000) FROM ({CLIENTS.replace('count(*)', 'pid')}) x")
    await app.aenqueue("work")


def test_a_connection_that_dies_in_the_middle_is_an_error_of_ours(app: App, connection: Connection) -> None:
    """The outcome is unknown, so it is not tried again by itself; the next call works."""
    with psycopg.connect(app.dsn) as blocker, ThreadPoolExecutor(1) as pool:
        app.enqueue("work", unique_key="k", connection=blocker)
        waiting = pool.submit(app.enqueue, "work", unique_key="k")
        stuck = CLIENTS.replace("count(*)", "pid") + " AND wait_event_type = 'Lock'"
        wait_until(lambda: rows(connection, stuck))
        rows(connection, f"SELECT pg_terminate_backend(pid, 5000) FROM ({stuck}) x")
        with pytest.raises(DatabaseUnavailable):
            waiting.result(10)
    assert app.enqueue("work").created


def test_an_unreachable_server_is_said_without_the_password() -> None:
    """At once; the next call tries again."""
    app = App("postgresql://someone:secret-word@127.0.0.1:1/nowhere")
    for _ in range(12):
        with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1.* port 1 failed") as caught:
            app.enqueue("work")
        assert "secret-word" not in str(caught.value)


def test_more_threads_than_connections_wait_for_their_turn(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are told when it does not come."""
    monkeypatch.setattr("pgtasks.store.pools.WAIT_S", 0.1)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(app._client._pools.connection())  # noqa: SLF001 - nothing public lends them out
        with pytest.raises(DatabaseUnavailable, match=r"all 10 connections .* in use for 0.1 s"):
            app.enqueue("work")
    assert app.enqueue("work").created
