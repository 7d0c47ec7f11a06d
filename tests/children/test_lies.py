"""A child is killed once it says what makes no sense, and nobody but its own task pays for that."""

import json
import time
from typing import Any

import pytest

from pgtasks.outcome import Completed, RetryIn
from tests.children.conftest import Pool, Pools, is_alive, quick

# What a handler writes to the socket instead of the program around it; every one as the outcome of the first task.
LIES: dict[str, dict[str, Any]] = {
    "unknown kind": {"outcome": {"kind": "Nope"}, "ticket": 1},
    "no object": {"outcome": 5, "ticket": 1},
    "result that is no text": {"outcome": {"kind": "Completed", "result": 5, "note": None}, "ticket": 1},
    "endless delay": {"outcome": {"kind": "Snoozed", "delay_s": float("inf")}, "ticket": 1},
    "ready again": {"ready": True},
    "failed after its start": {"failed": "not at all"},
    "nothing known": {"hello": 1},
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_child_that_says_what_makes_no_sense_is_killed(pool: Pool, lie: str) -> None:
    """Its task has failed, with what was wrong; the next one has a new process."""
    attempt = pool.submit("says", messages=[json.dumps(LIES[lie])])
    outcome = await pool.outcome(attempt)
    assert isinstance(outcome, RetryIn)
    assert outcome.failure.outcome == "worker_lost"
    assert "killed by SIGKILL (9); it sent what makes no sense (ValueError: " in outcome.failure.message
    assert isinstance(await pool.run("pid"), Completed)
    assert pool.runner.started == 2


@pytest.mark.parametrize("body", ["[" * 100_000, "{", "[]"])
async def test_a_child_that_sends_no_message_is_killed(pool: Pool, body: str) -> None:
    """Not even the reading of it ends anything else."""
    outcome = await pool.run("says", messages=[body])
    assert isinstance(outcome, RetryIn)
    assert "it sent what makes no sense" in outcome.failure.message


async def test_the_last_words_of_a_child_may_be_a_lie(pool: Pool) -> None:
    """They are read when it is dead already, and its task has an outcome all the same."""
    child = await pool.result("pid")
    attempt = pool.submit("says", messages=[json.dumps({**LIES["unknown kind"], "ticket": 2})], exits_with=3)
    until = time.monotonic() + 15
    while is_alive(child) and time.monotonic() < until:
        time.sleep(0.01)  # noqa: ASYNC251 - stands for a loop that is busy, so that the end is noticed before the words
    outcome = await pool.outcome(attempt)
    assert isinstance(outcome, RetryIn)
    assert "exited with code 3" in outcome.failure.message


async def test_nothing_is_given_to_a_child_that_is_not_believed(pool: Pool) -> None:
    """Between its kill and its end it looks idle."""
    first = await pool.result("pid")
    (child,) = pool.runner._idle  # noqa: SLF001 - as if it had said something while it had nothing to do
    child._take(b"\x00\x00\x00\x02[]")  # noqa: SLF001 - stands for bytes from the socket
    assert await pool.result("pid") != first


async def test_a_lie_at_the_start_is_a_failed_start(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again, and says why."""
    with quick(monkeypatch, RETRY_S=0.05):
        pool = pools()
        attempt = pool.submit("pid")
        (child,) = pool.runner._starting  # noqa: SLF001 - as if it had said something
        child._take(b"\x00\x00\x00\x02{}")  # noqa: SLF001 - stands for bytes from the socket
        assert type(await pool.outcome(attempt)).__name__ == "Released"
        assert "nothing that a child says at its start" in child.failure
        await pool.until(lambda: pool.runner.free() == 1)
