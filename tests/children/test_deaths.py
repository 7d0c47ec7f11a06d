"""A child that dies fails exactly its own task, at once, and is replaced."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pgtasks.outcome import Completed, RetryIn
from tests.children.conftest import Pool, Pools, is_alive, quick

DEATHS: list[tuple[str, dict[str, Any], str]] = [
    ("killed", {"number": 9}, "its process was killed by SIGKILL (9)"),
    ("killed", {"number": 6}, "its process was killed by SIGABRT (6)"),
    ("segfaults", {}, "its process was killed by SIGSEGV (11)"),
    ("exits", {"code": 3}, "its process exited with code 3"),
    ("aexits", {"code": 0}, "its process exited with code 0"),
]


async def test_a_death_fails_its_task_and_says_how(pool: Pool) -> None:
    """L-05: as worker_lost, whatever the policy retries; the next task has a new process."""
    for started, (name, payload, message) in enumerate(DEATHS, start=1):
        assert isinstance(await pool.run("pid"), Completed)
        assert pool.runner.started == started
        outcome = await pool.run(name, **payload)
        assert isinstance(outcome, RetryIn)
        assert (outcome.failure.error_class, outcome.failure.outcome) == ("pgtasks.errors.ProcessDied", "worker_lost")
        assert outcome.failure.message == message


async def test_neighbours_do_not_notice(pools: Pools, tmp_path: Path) -> None:
    """Four children at work, one of them killed."""
    pool, gate = pools(children=4), tmp_path / "gate"
    innocent = [pool.submit("waits_for", path=str(gate)) for _ in range(3)]
    guilty = pool.submit("killed", number=9)
    assert isinstance(await pool.outcome(guilty), RetryIn)
    assert not any(attempt in pool.outcomes for attempt in innocent)
    gate.touch()
    outcomes = [await pool.outcome(attempt) for attempt in innocent]
    assert len({outcome.result for outcome in outcomes if isinstance(outcome, Completed)}) == 3


async def test_the_after_hook_of_a_dead_childs_task_runs_in_the_worker(pool: Pool, tmp_path: Path) -> None:
    """Somebody may want to be alerted."""
    path = tmp_path / "hooked"
    await pool.run("exits", {"hooked": str(path)}, code=3)
    await pool.until(path.exists)
    await pool.until(lambda: path.read_text(encoding="utf-8") == f"RetryIn {os.getpid()}")


async def test_a_memory_limit_fails_the_task_and_not_the_process(pools: Pools) -> None:
    """The handler gets a MemoryError."""
    pool = pools("--memory-mib", "1024")
    outcome = await pool.run("hogs", mib=2000)
    assert isinstance(outcome, RetryIn)
    assert outcome.failure.error_class == "MemoryError"
    assert await pool.result("hogs", mib=10) == 10 * 1024 * 1024
    assert pool.runner.started == 1


async def test_a_child_is_replaced_after_its_share_of_tasks(pools: Pools) -> None:
    """One process never runs more than that, and there are never more processes than allowed."""
    pool = pools(tasks_max=2)
    attempts = [pool.submit("pid") for _ in range(5)]
    outcomes = [await pool.outcome(attempt) for attempt in attempts]
    pids = [outcome.result for outcome in outcomes if isinstance(outcome, Completed)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert not is_alive(int(str(pids[0])))


async def test_a_child_that_cannot_leave_is_killed(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python waits for threads that a handler left; the worker does not."""
    monkeypatch.setattr("pgtasks.engine.child.LEAVE_S", 0.2)
    pool = pools(tasks_max=1)
    old = await pool.result("leaves_a_thread")
    assert await pool.result("pid") != old
    assert not is_alive(old)


async def test_a_child_that_dies_idle_costs_no_task(pool: Pool) -> None:
    """A thread that its last handler left may have ended it."""
    await pool.result("dies_later", seconds=0.05)
    (child,) = pool.runner.pids
    await pool.until(lambda: child not in pool.runner.pids)
    assert await pool.result("echo", value=1) == 1
    assert pool.runner.started == 2


async def test_a_killed_idle_child_is_replaced_before_anybody_asks(pool: Pool) -> None:
    """One is kept warm."""
    child = await pool.result("pid")
    os.kill(child, signal.SIGKILL)
    await pool.until(lambda: pool.runner.pids not in ([], [child]))


async def test_idle_children_leave_but_for_one(pools: Pools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a burst the memory is given back."""
    with quick(monkeypatch, IDLE_S=0.3):
        pool, gate = pools(children=3), tmp_path / "gate"
        attempts = [pool.submit("waits_for", path=str(gate)) for _ in range(3)]
        await pool.until(lambda: len(pool.runner.pids) == 3)
        gate.touch()
        for attempt in attempts:
            assert isinstance(await pool.outcome(attempt), Completed)
        await pool.until(lambda: len(pool.runner.pids) == 1)
        assert await pool.result("pid") in pool.runner.pids


async def test_tasks_run_at_once_in_as_many_children_as_there_may_be(pools: Pools, tmp_path: Path) -> None:
    """One each; the rest wait, and nobody is asked for more meanwhile."""
    pool = pools(children=4)
    assert pool.runner.free() == 4
    attempts = [pool.submit("waits_for", path=str(tmp_path / str(number))) for number in range(6)]
    assert pool.runner.free() == 0
    await pool.until(lambda: len(pool.runner.pids) == 4)
    for number in (3, 4, 5):
        (tmp_path / str(number)).touch()
    (tmp_path / "0").touch()
    await pool.outcome(attempts[3])
    await pool.outcome(attempts[0])
    await pool.outcome(attempts[4])
    await pool.outcome(attempts[5])
    assert pool.runner.free() == 2
    assert len(pool.runner.pids) == 4
    for number in (1, 2):
        (tmp_path / str(number)).touch()
        await pool.outcome(attempts[number])
    assert pool.runner.started == 4
    assert pool.runner.free() == 4


async def test_a_stopped_process_does_not_block_the_worker(pool: Pool) -> None:
    """A large payload waits for room; the loop goes on."""
    child = await pool.result("pid")
    os.kill(child, signal.SIGSTOP)
    attempt = pool.submit("echo", value="x" * 2_000_000)
    async with asyncio.timeout(1):
        await asyncio.sleep(0.05)
    assert attempt not in pool.outcomes
    os.kill(child, signal.SIGCONT)
    assert isinstance(await pool.outcome(attempt), Completed)
