"""`python -m bench.handover [TASKS]`: isolated tasks a second through one warm child, without a database."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime

from bench import report
from pgtasks import App
from pgtasks.cli import child
from pgtasks.engine.attempt import Attempt, Judge
from pgtasks.engine.children import ChildOptions, ProcessRunner
from pgtasks.engine.runners import Finished
from pgtasks.model import Claimed
from pgtasks.outcome import Completed
from pgtasks.settings import WorkerSettings

TASKS, ROUNDS = 5_000, 3
app = App()


@app.task(executor="process")
def nothing() -> None:
    """End at once."""


class Pool:
    """One child, and how many tasks it is still to run."""

    def __init__(self) -> None:
        self._left = 0
        self._done = asyncio.Event()
        options = ChildOptions(child.command("bench.handover:app", WorkerSettings()), children=1)
        self.runner = ProcessRunner(Judge([], []), self._take, options, lambda: None)

    def _take(self, finished: Finished) -> None:
        assert all(isinstance(outcome, Completed) for _, outcome in finished), "a run with failures measures nothing"
        self._left -= len(finished)
        if not self._left:
            self._done.set()

    async def run(self, tasks: int) -> float:
        """Run so many tasks, one after the other; gives the seconds it took."""
        self._left, handler, now = tasks, nothing.handler, datetime.now(UTC)
        self._done.clear()
        claimed = [Claimed(number, 1, handler.name, "{}", 1, None, None, 0, now, None) for number in range(tasks)]
        began = time.perf_counter()
        self.runner.submit([Attempt(task, handler, "default", 0.0) for task in claimed])
        await self._done.wait()
        return time.perf_counter() - began


async def measure(tasks: int) -> list[dict[str, float]]:
    """Run the rounds, after one task that warms the child up."""
    pool = Pool()
    await pool.run(1)
    rounds = []
    for _ in range(ROUNDS):
        cpu_s, took_s = -time.process_time(), await pool.run(tasks)
        cpu_s += time.process_time()
        rounds.append({"tasks_s": round(tasks / took_s), "worker_cpu_us": round(1e6 * cpu_s / tasks, 1)})
    pool.runner.close(1.0)
    return rounds


if __name__ == "__main__":
    report.dump({"rounds": asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else TASKS))})
