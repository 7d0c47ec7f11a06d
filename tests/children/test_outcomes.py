"""What a handler does in a child process becomes of its task, as it would in the worker."""

import os
import signal
from pathlib import Path

import pytest

from pgtasks.outcome import Cancelled, Completed, Dead, RetryIn, Snoozed
from tests.apps.tasks import ERRORS, RESULTS
from tests.children.conftest import Pool

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_task_runs_in_another_process_which_is_kept(shared: Pool) -> None:
    """One child serves task after task, def and async def."""
    first, second = await shared.result("pid"), await shared.result("pid")
    assert first == second
    assert first not in {os.getpid(), None}
    assert await shared.result("aecho", value=1) == 1
    assert shared.runner.started == 1


@pytest.mark.parametrize("name", ["echo", "aecho"])
async def test_values_come_and_go_as_they_are(shared: Pool, name: str) -> None:
    """Large ones and any text that PostgreSQL keeps."""
    for value in (None, "", "ä😀\u202e\x01\n", {"a": [1, 2.5, None, {"": 10**4000}]}, "x" * 2_000_000, "😀" * 400_000):
        assert await shared.result(name, value=value) == value


async def test_a_payload_that_is_too_large_as_text_fails_its_task(
    shared: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL keeps some numbers in less room than their digits take."""
    monkeypatch.setattr("pgtasks.engine.frames.FRAME_BYTES_MAX", 100_000)
    outcome = await shared.run("echo", value="x" * 100_000)
    assert isinstance(outcome, Dead)
    assert "payload cannot be handed to a child process" in outcome.failure.message
    assert await shared.result("echo", value=1) == 1


@pytest.mark.parametrize("name", ["raises", "araises"])
async def test_an_error_of_any_kind_fails_the_task_and_not_the_process(shared: Pool, name: str) -> None:
    """R-03: also SystemExit, KeyboardInterrupt and those that cannot be pickled or printed."""
    for error in ERRORS:
        outcome = await shared.run(name, error=error)
        if error == "BareSnooze":
            assert isinstance(outcome, RetryIn)
            continue
        assert isinstance(outcome, RetryIn), (error, outcome)
        assert outcome.failure.outcome == "failed"
    assert shared.runner.started == 1


async def test_a_handler_may_ask_python_to_exit(shared: Pool) -> None:
    """R-03: that is an exception like any other."""
    outcome = await shared.run("sys_exits", code=3)
    assert isinstance(outcome, RetryIn)
    assert outcome.failure.error_class == "SystemExit"
    assert "sys.exit(code)" in outcome.failure.traceback
    assert shared.runner.started == 1


async def test_results_that_cannot_be_kept_are_noted(shared: Pool) -> None:
    """R-05: the work is done either way; a coroutine is work that was not done."""
    for result in RESULTS:
        outcome = await shared.run("returns", result=result)
        if result == "coroutine":
            assert isinstance(outcome, Dead)
            continue
        assert isinstance(outcome, Completed), result
        assert outcome.result is None
        assert str(outcome.note).startswith("result not stored: "), result
    assert shared.runner.started == 1


async def test_handlers_steer_as_anywhere(shared: Pool) -> None:
    """With a delay, for good, or as cancelled."""
    assert await shared.run("steers", how="snooze") == Snoozed(3.0)
    assert await shared.run("steers", how="cancel") == Cancelled("no longer wanted")
    later = await shared.run("steers", how="later")
    assert isinstance(later, RetryIn)
    assert (later.delay_s, later.failure.message) == (4.0, "not yet")
    permanent = await shared.run("steers", how="permanent")
    assert isinstance(permanent, Dead)
    assert permanent.reason == "permanent"


async def test_hooks_run_in_the_child(shared: Pool, tmp_path: Path) -> None:
    """Before and after the handler; what the first raises fails the task."""
    path = tmp_path / "hooked"
    child = await shared.result("pid", {"hooked": str(path)})
    assert path.read_text(encoding="utf-8") == f"Completed {child}"
    refused = await shared.run("pid", {"refuse": True})
    assert isinstance(refused, Dead)
    assert refused.failure.message == "refused by a hook"
    expected = ["before pid", "Completed", "before pid", "Dead", "before seen"]
    assert (await shared.result("seen"))[-len(expected) :] == expected


async def test_arguments_that_do_not_fit_fail_the_task(shared: Pool) -> None:
    """As anywhere."""
    outcome = await shared.run("echo", wrong=1)
    assert isinstance(outcome, RetryIn)
    assert "missing value; unknown wrong" in outcome.failure.message


async def test_the_context_says_what_is_known(shared: Pool) -> None:
    """All of it travels."""
    headers = {"pgtasks.fire_time": "2026-11-29T03:00:00+00:00", "trace": "ä"}
    attempt = shared.submit("tells", headers)
    told = await shared.outcome(attempt)
    assert isinstance(told, Completed)
    found = await shared.result("tells", headers)
    left = found.pop("remaining_s")
    assert 1790 < left <= 1800
    assert found == {
        "task_id": attempt.task.id + 1,
        "queue": "mail",
        "attempt": 1,
        "max_attempts": 2,
        "lease_id": 4_000_000_000,
        "run_at": "2026-11-29 22:00:00.000005+00:00",
        "headers": headers,
        "fire_time": "2026-11-29 03:00:00+00:00",
        "cancelled": False,
        "lease_lost": False,
    }


async def test_signals_that_are_meant_for_the_worker_change_nothing(shared: Pool) -> None:
    """An init system sends SIGTERM to every process of a service. A program of the handler's is terminated by it."""
    assert await shared.result("ignores_sigterm") == -signal.SIGTERM


async def test_what_a_handler_forks_does_not_speak_for_it(shared: Pool) -> None:
    """It ends when the handler's function returns there."""
    assert await shared.result("forks") > 0
    assert await shared.result("echo", value=1) == 1
    assert shared.runner.started == 1
