"""The rivals on Node.js and on Redis: what is missing is said, and each one runs what it is given."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import database, machine
from bench.rivals import install, redis, run
from bench.rivals.celery import Celery
from bench.rivals.dramatiq import Dramatiq
from bench.rivals.graphile import Graphile, GraphileAsDocumented
from bench.rivals.node import NodeRival
from bench.rivals.pgboss import Pgboss
from bench.rivals.redis import MOST_TASKS, SERVER, RedisRival, ask
from bench.rivals.rival import Rival, Unavailable
from tests.long import LONG

NODE: list[NodeRival] = [Graphile(), GraphileAsDocumented(), Pgboss()]
REDIS: list[RedisRival] = [Celery(), Dramatiq()]
RIVALS: list[Rival] = [*NODE, *REDIS]


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[list[bytes]]:
    """Listen on a socket for one command, and give what was asked."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(1024))
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        thread.join(5)


@pytest.mark.parametrize(
    ("answer", "value"), [(b":12\r\n", 12), (b"+PONG\r\n", "PONG"), (b":0\r\n", 0)], ids=["number", "status", "zero"]
)
def test_a_redis_is_asked_in_its_protocol(tmp_path: Path, answer: bytes, value: int | str) -> None:
    """One command, its parts with their lengths in bytes, and one line back."""
    with answering(tmp_path / "redis.sock", answer) as asked:
        assert ask(str(tmp_path / "redis.sock"), "LLEN", "caf\u00e9") == value
    assert asked == ["*2\r\n$4\r\nLLEN\r\n$5\r\ncaf\u00e9\r\n".encode()]


@pytest.mark.parametrize("answer", [b"-ERR no\r\n", b""], ids=["an error", "nothing"])
def test_a_redis_that_refuses_is_no_zero(tmp_path: Path, answer: bytes) -> None:
    """A queue that cannot be read is not an empty one."""
    with answering(tmp_path / "redis.sock", answer), pytest.raises(Unavailable, match="Redis says"):
        ask(str(tmp_path / "redis.sock"), "LLEN", "celery")


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_a_missing_runtime_is_said(rival: Rival, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Never a silent omission: the harness writes it under `missing`."""
    monkeypatch.setattr(type(rival), "folder", tmp_path / "nothing")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(Unavailable, match="which is not on the PATH"):
        rival.install()


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_a_rival_says_how_it_was_configured(rival: Rival) -> None:
    """Exact versions, what was set for speed, who says so, and what is left of a finished task."""
    assert all("==" in package or package.count("@") == 1 for package in rival.packages)
    assert len(rival.settings) > 100
    assert all(source.startswith("https://") for source in rival.sources)
    assert rival.keeps


@pytest.mark.parametrize("rival", REDIS, ids=lambda rival: rival.name)
def test_redis_is_as_durable_as_the_measured_server(rival: RedisRival) -> None:
    """Or the comparison would be one of disks against memory."""
    assert SERVER["appendonly"] == "yes"
    assert SERVER["appendfsync"] == "always"
    assert "appendfsync always" in rival.settings


@pytest.mark.parametrize("rival", REDIS, ids=lambda rival: rival.name)
def test_redis_is_given_what_it_can_hold(rival: RedisRival, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says how many that were, for a run of all that it was given is a whole one."""
    monkeypatch.setattr(redis, "ask", lambda *_: "OK")
    monkeypatch.setattr(install, "checked", lambda argv, env: pushed.append(argv[-1]))
    monkeypatch.setattr(rival, "unacknowledged", lambda _dsn: int(pushed[-1]))
    pushed: list[str] = []
    assert [rival.fill("redis.sock", tasks) for tasks in (7, 2 * MOST_TASKS)] == [7, MOST_TASKS]
    assert pushed == ["7", str(MOST_TASKS)]


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="it is Redis that is started")
def test_redis_is_on_the_disk_of_the_measured_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Or each of its writes would be durable in name only."""
    monkeypatch.setattr(machine, "disk_folder", lambda: tmp_path)
    nobody: Any = None
    with Celery().place(nobody) as place:
        assert Path(place.dsn).is_relative_to(tmp_path)
        assert ask(place.dsn, "PING") == "PONG"
    assert not list(tmp_path.iterdir())


@LONG
@pytest.mark.pg
@pytest.mark.timeout(400)
@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_a_rival_finishes_what_it_is_given(rival: Rival) -> None:
    """Its environment is made, and 2,000 tasks are run and acknowledged, by its store's own count."""
    try:
        rival.install()
    except Unavailable as error:
        pytest.skip(str(error))
    with database.started() as bench:
        done = run.run(rival, bench, tasks=2_000, seconds=120)
    assert done.is_whole
    assert done.tasks == 2_000
    assert done.rate > 10
    assert done.cpu_s > 0
    assert (done.wal_bytes or 0) > 0 or isinstance(rival, RedisRival)


@LONG
@pytest.mark.pg
@pytest.mark.timeout(200)
@pytest.mark.parametrize("rival", NODE, ids=lambda rival: rival.name)
def test_a_rival_enqueues_and_shows_how_soon_it_picks_up(rival: NodeRival) -> None:
    """By its own API, one by one and in bulk, and each task that it enqueued as an idle worker is counted."""
    try:
        rival.install()
    except Unavailable as error:
        pytest.skip(str(error))
    with database.started() as bench:
        single, bulk = (run.enqueue(rival, bench, 300, how) for how in ("single", "bulk"))
        waits_s = run.latencies_s(rival, bench, 20, every_s=0.05)
    assert 0 < single < bulk
    assert len(waits_s) == 20
    assert 0 < min(waits_s) < 1
