"""Pools of child processes without a worker and without a database."""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pgtasks.engine.attempt import Attempt, Judge
from pgtasks.engine.children import ChildOptions, ProcessRunner
from pgtasks.engine.runners import Finished
from pgtasks.model import Claimed
from pgtasks.outcome import Completed, Outcome
from tests.apps.isolated import app
from tests.database import ROOT

APP = "tests.apps.isolated:app"
RUN_AT = datetime(2026, 11, 29, 22, 0, 0, 5, UTC)
# A child has to import the app first, on a machine that may be busy.
DEADLINE_S = 15.0


class Pool:
    """A pool of children, and what became of the tasks that were given to it."""

    def __init__(self, children: int, tasks_max: int, flags: tuple[str, ...]) -> None:
        self.outcomes: dict[Attempt, Outcome] = {}
        self._ids = itertools.count(3_000_000_001)
        self._news = asyncio.Event()
        command = [sys.executable, "-m", "pgtasks.cli.child", APP, *flags]
        judge = Judge(app.before_hooks, app.after_hooks)
        self.runner = ProcessRunner(judge, self._take, ChildOptions(command, children, tasks_max), self._news.set)

    def _take(self, finished: Finished) -> None:
        for attempt, outcome in finished:
            assert attempt not in self.outcomes, "an attempt has one outcome"
            self.outcomes[attempt] = outcome
        self._news.set()

    def submit(self, name: str, headers: dict[str, Any] | None = None, **payload: Any) -> Attempt:
        """Give the pool a task."""
        task = Claimed(
            id=next(self._ids),
            lease_id=4_000_000_000,
            name=name,
            payload=json.dumps(payload),
            attempt=1,
            max_attempts=None,
            timeout_s=None,
            priority=0,
            run_at=RUN_AT,
            headers=json.dumps(headers) if headers else None,
        )
        attempt = Attempt(task, app.handlers[name], "mail", 0.0)
        self.runner.submit([attempt])
        return attempt

    async def until(self, condition: Callable[[], object], timeout_s: float = DEADLINE_S) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - conditions concern files and processes as well
                await asyncio.sleep(0.005)

    async def outcome(self, attempt: Attempt) -> Outcome:
        """Wait for a task's end."""
        await self.until(lambda: attempt in self.outcomes)
        return self.outcomes[attempt]

    async def run(self, name: str, headers: dict[str, Any] | None = None, **payload: Any) -> Outcome:
        """Run a task."""
        return await self.outcome(self.submit(name, headers, **payload))

    async def result(self, name: str, headers: dict[str, Any] | None = None, **payload: Any) -> Any:
        """Run a task that ends well, and give its result."""
        outcome = await self.run(name, headers, **payload)
        assert isinstance(outcome, Completed), outcome
        assert outcome.note is None
        return None if outcome.result is None else json.loads(outcome.result)

    async def begun(self, path: Path) -> int:
        """Wait until a handler has written down the number of its process."""
        await self.until(lambda: written(path))
        return int(written(path))

    def stop(self, attempt: Attempt, reason: BaseException) -> None:
        """Stop a task, as the executor does."""
        attempt.stop(reason)
        self.runner.interrupt(attempt)


def written(path: Path) -> str:
    """Give what a file holds, nothing if it is not there."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


Pools = Callable[..., Pool]


@contextmanager
def running() -> Iterator[Pools]:
    """Make pools, which end with this context."""
    made: list[Pool] = []

    def make(*flags: str, children: int = 1, tasks_max: int = 0) -> Pool:
        made.append(Pool(children, tasks_max, flags))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.chdir(ROOT)
        yield make
        for each in made:
            each.runner.close(5.0)
            assert not [pid for pid in each.runner.pids if is_alive(pid)]


@pytest.fixture
async def pools() -> AsyncIterator[Pools]:
    """Make pools, which end with the test."""
    with running() as make:
        yield make


@pytest.fixture
async def pool(pools: Pools) -> Pool:
    """A pool of one child."""
    return pools()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Pool]:
    """A pool of one child for the tests of a whole file, which say that they run on the file's loop."""
    with running() as make:
        yield make()


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


@contextmanager
def quick(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> Iterator[None]:
    """Shorten the times of the pool."""
    with monkeypatch.context() as patch:
        for name, value in seconds.items():
            patch.setattr(f"pgtasks.engine.children.{name}", value)
        yield
