"""A task in a child process ends when it is told to, whatever its handler does."""

import asyncio
import time
from pathlib import Path

import pytest

from pgtasks.engine.children import KILL_S
from pgtasks.engine.crossing import reason_out
from pgtasks.errors import LeaseLost, TaskTimeout
from pgtasks.outcome import Cancelled, CancelRequested, Completed, Lost, Outcome, Released, RetryIn, StopRequested
from tests.children.conftest import Pool, is_alive, quick, written

TIMEOUT = "ran longer than its timeout of 1 s"


async def stopped(pool: Pool, name: str, path: Path, reason: BaseException) -> tuple[Outcome, float, int]:
    """Stop a task that has begun; give its outcome, the seconds that took, and its process."""
    attempt = pool.submit(name, path=str(path))
    child = await pool.begun(path)
    since = time.monotonic()
    pool.stop(attempt, reason)
    return await pool.outcome(attempt), time.monotonic() - since, child


async def test_python_code_is_interrupted_and_cleans_up(pool: Pool, tmp_path: Path) -> None:
    """R-06: also a def handler that never asks; its process is not used again."""
    for started, name in enumerate(["sleeps", "spins", "asleeps"], start=1):
        path = tmp_path / name
        outcome, took_s, _ = await stopped(pool, name, path, TaskTimeout(TIMEOUT))
        assert isinstance(outcome, RetryIn)
        assert (outcome.failure.outcome, outcome.failure.message) == ("timed_out", TIMEOUT)
        assert name in outcome.failure.traceback
        assert written(path) == "cleaned up"
        assert took_s < KILL_S
        assert pool.runner.started == started


async def test_a_task_ends_as_the_reason_says(pool: Pool, tmp_path: Path) -> None:
    """Cancelled, released or lost; the context says which."""
    reasons: list[tuple[BaseException, Outcome]] = [
        (CancelRequested(), Cancelled("cancelled while it ran")),
        (StopRequested(), Released()),
        (LeaseLost("gone"), Lost()),
    ]
    for reason, expected in reasons:
        path = tmp_path / type(reason).__name__
        outcome, _, _ = await stopped(pool, "waits", path, reason)
        assert outcome == expected
        assert written(path) == f"cancelled=True lost={isinstance(reason, LeaseLost)}"


async def test_what_cannot_be_interrupted_is_killed(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-06: C code that keeps the interpreter, and Python code that swallows everything."""
    with quick(monkeypatch, KILL_S=0.3):
        outcome, took_s, child = await stopped(pool, "sleeps_in_c", tmp_path / "c", StopRequested())
        assert outcome == Released()
        assert took_s >= 0.3
        assert not is_alive(child)
        outcome, _, child = await stopped(pool, "defies", tmp_path / "python", LeaseLost("gone"))
        assert outcome == Lost()
        assert not is_alive(child)


async def test_a_killed_task_has_timed_out(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not lost: what killed it is its time limit. Its programs are killed with it."""
    with quick(monkeypatch, KILL_S=0.3):
        path = tmp_path / "begun"
        outcome, _, program = await stopped(pool, "starts_a_program", path, TaskTimeout(TIMEOUT))
    assert isinstance(outcome, RetryIn)
    assert (outcome.failure.outcome, outcome.failure.message) == ("timed_out", TIMEOUT)
    await pool.until(lambda: not is_alive(program))


async def test_a_stop_works_after_a_handler_took_its_signal(pool: Pool, tmp_path: Path) -> None:
    """Each task begins with the signal in our hands."""
    await pool.result("replaces_sigterm")
    outcome, took_s, _ = await stopped(pool, "sleeps", tmp_path / "begun", CancelRequested())
    assert isinstance(outcome, Cancelled)
    assert took_s < KILL_S


async def test_a_task_that_waits_for_a_child_ends_without_one(pool: Pool, tmp_path: Path) -> None:
    """Its time has not begun, and its handler neither."""
    gate = tmp_path / "gate"
    running = pool.submit("waits_for", path=str(gate))
    waiting = pool.submit("pid")
    assert waiting.deadline is None
    pool.stop(waiting, StopRequested())
    assert await pool.outcome(waiting) == Released()
    gate.touch()
    assert isinstance(await pool.outcome(running), Completed)
    assert running.deadline is not None


async def test_a_stop_that_comes_too_late_stops_nothing_else(pool: Pool, tmp_path: Path) -> None:
    """The next task of the same process does not hear it, even if it has begun before the stop arrives."""
    first = pool.submit("pid")
    await pool.outcome(first)
    pool.stop(first, CancelRequested())
    gate = tmp_path / "gate"
    second = pool.submit("waits_for", path=str(gate))
    child = pool.runner._busy[second]  # noqa: SLF001 - a message that was under way when the first one ended
    child.send({"stop": reason_out(CancelRequested()), "ticket": child.tickets - 1})
    gate.touch()
    assert isinstance(await pool.outcome(second), Completed)
    assert pool.runner.started == 1


async def test_a_stop_before_the_first_line_stops_the_task(pool: Pool, tmp_path: Path) -> None:
    """It was handed over a moment ago."""
    for _ in range(4):
        attempt = pool.submit("sleeps", path=str(tmp_path / "begun"))
        pool.stop(attempt, CancelRequested())
        assert await pool.outcome(attempt) == Cancelled("cancelled while it ran")


async def test_an_end_of_the_worker_waits_for_nothing(pool: Pool, tmp_path: Path) -> None:
    """Everything is decided at once, and the process is gone a moment later."""
    attempt, waiting = pool.submit("defies", path=str(tmp_path / "begun")), pool.submit("pid")
    child = await pool.begun(tmp_path / "begun")
    pool.runner.end_now()
    assert pool.outcomes == {attempt: Released(), waiting: Released()}
    assert pool.runner.free() == 0
    await pool.until(lambda: not is_alive(child))
    await asyncio.sleep(0.05)
    assert pool.runner.started == 1
