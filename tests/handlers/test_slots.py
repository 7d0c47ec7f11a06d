"""The executor's accounting: slots are never exceeded, never lost, and each task gets one outcome."""

import asyncio
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

from pgtasks import App, Cancel, PermanentError, Retry, Snooze
from pgtasks.engine import executor as executor_module
from pgtasks.engine.attempt import Attempt, Judge
from pgtasks.engine.executor import Executor
from pgtasks.engine.leases import Leases
from pgtasks.engine.runners import Finished, ThreadRunner
from pgtasks.engine.slots import Slots
from pgtasks.model import Claimed
from pgtasks.outcome import Completed, Dead, Outcome, Released, Snoozed
from pgtasks.settings import QueueSlots

ENDS = ("return", "raise", "exit", "snooze", "cancel", "dead", "wait", "deaf", "short timeout")


class Gauge:
    """Counts what runs at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def end(how: str) -> None:
    """End in one of the ways."""
    match how:
        case "raise":
            raise ValueError(how)
        case "exit":
            raise SystemExit(how)
        case "snooze":
            raise Snooze(1)
        case "cancel":
            raise Cancel
        case "dead":
            raise PermanentError(how)


def make_app(gauge: Gauge) -> App:
    """Return an app with one async and one sync handler."""
    app = App("postgresql://nowhere", retry=Retry(base=0))

    @app.task
    async def on_loop(how: str) -> None:
        with gauge:
            if how == "deaf":
                until = time.monotonic() + 0.15
                while time.monotonic() < until:
                    try:
                        await asyncio.sleep(0.01)
                    except asyncio.CancelledError:
                        continue
            elif how in {"wait", "short timeout"}:
                await asyncio.sleep(0.05)
            end(how)

    @app.task
    def in_thread(how: str) -> None:
        with gauge:
            if how in {"deaf", "wait", "short timeout"}:
                time.sleep(0.15 if how == "deaf" else 0.05)  # stands for work
            end(how)

    return app


def claimed(rng: random.Random, number: int) -> tuple[str, Claimed]:
    """Return a queue and a task that ends in some way."""
    how = rng.choice(ENDS)
    timeout_s = 0.02 if how == "short timeout" or rng.random() < 0.1 else None
    name = rng.choice(["on_loop", "in_thread"])
    row: Any = (number, number // 7, name, f'{{"how":"{how}"}}', 1, None, timeout_s, 0, None, None)
    return rng.choice(["one", "two"]), Claimed(*row)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Abandon soon."""
    monkeypatch.setattr(executor_module, "ABANDON_S", 0.03)


def start_some(executor: Executor, slots: Slots, rng: random.Random, number: int) -> int:
    """Start a few tasks, as many as there are slots for; return the next number."""
    batch: dict[str, list[Claimed]] = {"one": [], "two": []}
    for _ in range(rng.randrange(1, 9)):
        queue, task = claimed(rng, number)
        if slots.free_in(queue) > len(batch[queue]) and slots.free() > sum(map(len, batch.values())):
            batch[queue].append(task)
            number += 1
    for queue, tasks in batch.items():
        if tasks:
            executor.start(queue, tasks)
    return number


def disturb(executor: Executor, rng: random.Random) -> None:
    """Cancel a task now and then, or lose its lease; sometimes before it has begun."""
    held = executor.held()
    if held and rng.random() < 0.4:
        executor.cancel(rng.choice([held[-1], rng.choice(held)])[0])
    if held and rng.random() < 0.1:
        executor.lose({rng.choice(held)[1]}, "a test took it")


async def wait_ended(executor: Executor) -> None:
    """Wait until nothing runs any more."""
    until = time.monotonic() + 10
    while executor.running or executor.stuck:
        assert time.monotonic() < until, f"running {executor.running}, stuck {executor.stuck}"
        await executor.watch()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.usefixtures("_impatient")
async def test_slots_are_never_exceeded_and_never_lost(seed: int) -> None:
    """Random ends, timeouts, cancellations and lost leases, with a limit per queue."""
    rng, gauge, ended = random.Random(seed), Gauge(), Counter[int]()
    slots = Slots(12, (QueueSlots("one", 5), QueueSlots("two")))

    def take(finished: Finished) -> None:
        ended.update(attempt.task.id for attempt, _ in finished)

    executor = Executor(make_app(gauge), slots, Leases(30.0), take)
    number = 0
    while number < 600:
        number = start_some(executor, slots, rng, number)
        assert 0 <= slots.busy <= slots.total
        assert slots.free_in("one") >= 0
        disturb(executor, rng)
        await executor.watch()
        await asyncio.sleep(rng.random() * 0.01)
    await wait_ended(executor)
    executor.close()
    assert (slots.busy, slots.free_in("one"), slots.free_in("two")) == (0, 5, 12)
    assert ended == Counter(range(number))
    assert gauge.now == 0
    assert 1 < gauge.most <= 12


async def test_what_cannot_start_is_given_back(caplog: pytest.LogCaptureFixture) -> None:
    """A task without a handler and one that comes after the stop lose neither their batch nor a slot."""
    slots, found = Slots(10, (QueueSlots("one"),)), list[tuple[Attempt, Outcome]]()
    executor = Executor(make_app(Gauge()), slots, Leases(30.0), found.extend)
    rows: list[Any] = [
        (number, 1, name, '{"how":"return"}', 1, None, None, 0, None, None)
        for number, name in enumerate(("nobody", "on_loop", "in_thread"))
    ]
    executor.start("one", [Claimed(*row) for row in rows])
    await wait_ended(executor)
    executor.accepting = False
    executor.start("one", [Claimed(*row) for row in rows])
    executor.close()
    outcomes = sorted((attempt.task.id, type(outcome)) for attempt, outcome in found[:3])
    assert outcomes == [(0, Snoozed), (1, Completed), (2, Completed)]
    assert [type(outcome) for _, outcome in found[3:]] == [Released] * 3
    assert slots.busy == 0
    assert "claimed a task without a handler" in caplog.text


async def test_a_limit_on_threads_fails_tasks_instead_of_losing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started at all, its tasks fail with the reason."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    found = list[tuple[Attempt, Outcome]]()
    runner = ThreadRunner(Judge([], []), found.extend, 5)
    app = make_app(Gauge())
    row: Any = (1, 1, "in_thread", '{"how":"return"}', 1, 1, None, 0, None, None)
    attempts = [Attempt(Claimed(*row), app.handlers["in_thread"], "one", 0.0) for _ in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        runner.submit(attempts)
    assert [outcome.failure.message for _, outcome in found if isinstance(outcome, Dead)] == [
        "can't start new thread"
    ] * 3


async def test_what_is_about_to_start_counts_and_heeds_a_stop() -> None:
    """It has its slots, nothing that must be alone starts beside it, and a stop before it begins gives it back."""
    slots, found = Slots(10, (QueueSlots("one"),)), list[tuple[Attempt, Outcome]]()
    executor = Executor(make_app(Gauge()), slots, Leases(30.0), found.extend)
    rows: list[Any] = [(number, 1, "on_loop", '{"how":"return"}', 1, None, None, 0, None, None) for number in range(3)]
    # The first batch makes the runner.
    executor.start("one", [Claimed(*row) for row in rows], soon=True)
    assert len(executor.held()) == 3
    await wait_ended(executor)
    found.clear()
    assert executor.children_free() == 1
    executor.start("one", [Claimed(*row) for row in rows], soon=True)
    assert (executor.running, slots.busy, executor.held()) == (3, 3, [])
    assert executor.children_free() == 0
    await wait_ended(executor)
    assert [type(outcome) for _, outcome in found] == [Completed] * 3
    executor.start("one", [Claimed(*row) for row in rows], soon=True)
    executor.accepting = False
    executor.stop_all()
    await wait_ended(executor)
    executor.close()
    assert [type(outcome) for _, outcome in found[3:]] == [Released] * 3
    assert slots.busy == 0
