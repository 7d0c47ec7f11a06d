"""What a child process has from its worker: standard streams, an app that can be imported, nothing else."""

import asyncio
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pgtasks.outcome import Completed, Released
from tests.children.conftest import Pool, Pools, quick


async def test_printing_disturbs_nothing(
    pool: Pool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages have a descriptor of their own; standard output and error are the worker's."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    assert await pool.result("prints", text="hello 😀") == ""
    out, error = capfd.readouterr()
    assert "hello 😀\n" in out
    assert "hello 😀\n" in error
    assert "\x00\x00\x00\x05hello\n" in out


async def test_tasks_are_given_back_where_no_child_can_start(
    pools: Pools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No attempt is charged, the log says why, no more are taken, and it is tried again later."""
    broken = tmp_path / "broken"
    broken.touch()
    monkeypatch.setenv("PGTASKS_TEST_BROKEN", str(broken))
    with quick(monkeypatch, RETRY_S=0.2):
        pool = pools(children=2)
        attempts = [pool.submit("pid"), pool.submit("pid")]
        assert [await pool.outcome(attempt) for attempt in attempts] == [Released(), Released()]
        assert pool.runner.free() == 0
        assert not pool.runner.failing
        assert 0 < pool.runner.retry_in_s <= 0.2
        await pool.until(lambda: pool.runner.failing)
        assert pool.runner.started == 4
        assert 0 < pool.runner.retry_in_s <= 0.8
        assert pool.runner.free() == 0
        broken.unlink()
        await pool.until(lambda: pool.runner.free() == 2)
        assert (pool.runner.failing, pool.runner.retry_in_s) == (False, 0.0)
        assert isinstance(await pool.run("pid"), Completed)
    why = [vars(record)["pgtasks"] for record in caplog.records if record.getMessage() == "child process did not start"]
    assert "RuntimeError: this app cannot be imported in a child" in why[0]["why"]
    assert "isolated.py" in why[0]["why"]
    assert [facts["retry_in_s"] for facts in why[:2]] == [0.2, 0.4]


async def test_nothing_is_held_behind_a_busy_child_where_no_other_can_start(
    pools: Pools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-06: what waits is given back, also what was claimed meanwhile; what runs goes on."""
    gate, broken = tmp_path / "gate", tmp_path / "broken"
    monkeypatch.setenv("PGTASKS_TEST_BROKEN", str(broken))
    # No second try helps.
    monkeypatch.setattr("pgtasks.engine.children.RETRY_S", 60.0)
    pool = pools(children=2)
    busy = pool.submit("waits_for", path=str(gate))
    await pool.until(lambda: pool.runner._busy)  # noqa: SLF001 - its child has read the app
    broken.touch()
    assert await pool.run("pid") == Released()
    assert await pool.run("pid") == Released()
    assert not pool.runner.failing
    assert busy not in pool.outcomes
    gate.touch()
    assert isinstance(await pool.outcome(busy), Completed)
    assert isinstance(await pool.run("pid"), Completed)


async def test_a_child_that_nobody_can_watch_is_ended_at_once(
    pools: Pools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system has no thread left; the task is given back, and no process stays."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*args, **options))
        return started[-1]

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = pools()
    with monkeypatch.context() as patch:
        patch.setattr("pgtasks.engine.child.subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": start}))
        patch.setattr(threading.Thread, "start", refuse)
        attempt = pool.submit("pid")
    assert await pool.outcome(attempt) == Released()
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert "RuntimeError: can't start new thread" in [
        vars(record)["pgtasks"]["why"] for record in caplog.records if "did not start" in record.getMessage()
    ]


async def test_a_program_that_is_not_there_is_no_end_of_the_worker(
    pools: Pools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the system has no process left to give."""
    pool = pools()
    monkeypatch.setattr(pool.runner, "_options", pool.runner._options.__class__(["/nowhere/python"], 1))  # noqa: SLF001 - a machine without it
    assert await pool.run("pid") == Released()
    (record,) = [record for record in caplog.records if record.getMessage() == "child process did not start"]
    assert "/nowhere/python" in vars(record)["pgtasks"]["why"]


async def test_a_child_that_never_gets_ready_is_killed(
    pools: Pools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task is given back, and the log says how long that took; one that somebody else kills is not called slow."""
    with quick(monkeypatch, START_S=0.001):
        pool = pools()
        assert await pool.run("pid") == Released()
    pool = pools()
    attempt = pool.submit("pid")
    (child,) = pool.runner._starting  # noqa: SLF001 - the one to kill
    os.kill(child.pid, signal.SIGKILL)
    assert await pool.outcome(attempt) == Released()
    slow, killed = (
        vars(record)["pgtasks"]["why"] for record in caplog.records if "did not start" in record.getMessage()
    )
    assert slow == "it was not ready within 0.001 s"
    assert "SIGKILL" in killed


async def test_time_begins_when_a_child_takes_the_task(pool: Pool) -> None:
    """Importing the app does not count."""
    since = time.monotonic()
    attempt = pool.submit("pid")
    assert attempt.deadline is None
    await asyncio.sleep(0.1)
    assert isinstance(await pool.outcome(attempt), Completed)
    assert attempt.started > since + 0.05
    assert attempt.deadline == attempt.started + 1800


async def test_no_descriptor_is_inherited(pool: Pool) -> None:
    """D-06: but the standard ones and the one for messages."""
    with Path("pyproject.toml").open(encoding="utf-8") as opened:  # noqa: ASYNC230 - nothing else runs on this loop
        os.set_inheritable(opened.fileno(), True)  # noqa: FBT003 - its one argument
        found = await pool.result("descriptors")
    assert found.pop("0") == "/dev/null"
    rest = {name: what for name, what in found.items() if int(name) > 2 and "/fd" not in what}
    assert len(rest) == 1, rest
    assert next(iter(rest.values())).startswith("socket:")
