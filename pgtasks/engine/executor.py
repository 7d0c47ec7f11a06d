"""From a claimed batch to delivered outcomes: slots, runners, time limits, stops.

All of it runs on the engine's loop; only handlers run elsewhere (``runners``).

An attempt ends in one of three ways. It returns or raises: the runner delivers its outcome.
It is stopped (timeout, cancellation, lost lease, shutdown): its handler is interrupted and
delivers an outcome soon. Or it ignores that for ``ABANDON_S``: then it is abandoned. Its
outcome is decided without it and its later end changes nothing, but its slot stays occupied
until then, so that the number of running handlers never exceeds the limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection

from pgtasks import events
from pgtasks.app import App
from pgtasks.engine.attempt import Attempt, Judge
from pgtasks.engine.blockage import Blockage, LoopWatch
from pgtasks.engine.children import ChildOptions, ProcessRunner
from pgtasks.engine.leases import Leases
from pgtasks.engine.periodic import Signal
from pgtasks.engine.reports import Reporter, facts_of, report_completed
from pgtasks.engine.runners import AsyncRunner, Finished, ThreadRunner
from pgtasks.engine.slots import Slots
from pgtasks.errors import ConfigError, LeaseLost, TaskTimeout
from pgtasks.handlers import handler as describe_handler
from pgtasks.model import Claimed
from pgtasks.outcome import (
    CancelRequested,
    Outcome,
    Released,
    Snoozed,
    StopRequested,
)
from pgtasks.retry import Retry

ABANDON_S = 5.0
WATCH_S = 0.1
UNKNOWN_DELAY_S = 30.0
CLOSE_S, CLOSE_STUCK_S = 0.4, 0.05
OnOutcomes = Callable[[Finished], None]


class LeaseInDoubt(StopRequested):
    """Stands for "the database did not answer in time": the task is released, under its lease."""


class Executor:
    """Runs claimed tasks and hands their outcomes on.

    Without ``children`` there are no child processes; raises ConfigError when the app needs them.
    """

    def __init__(
        self, app: App, slots: Slots, leases: Leases, on_outcomes: OnOutcomes, children: ChildOptions | None = None
    ) -> None:
        self._app, self._slots, self._leases, self._on_outcomes = app, slots, leases, on_outcomes
        self._engine_loop = asyncio.get_running_loop()
        self._judge = Judge(app.before_hooks, app.after_hooks)
        self._reporter = Reporter()
        self._async: AsyncRunner | None = None
        self._threads: ThreadRunner | None = None
        # In the order of their start. By attempt and not by task id: a task whose lease was lost
        # may be claimed again here while its old handler is still ending.
        self._running: dict[Attempt, None] = {}
        # How many more have their slots, and start in the next turn of the loop.
        self._starting = 0
        self._stuck: set[Attempt] = set()
        self._loop_watch = LoopWatch()
        # Loops that are blocked for good, and whether there ever was one.
        self._left_loops: list[AsyncRunner] = []
        self.gave_up_loop = False
        self.slot_freed = Signal()
        self.child_freed = Signal()
        # Cleared when the worker stops: what a claim under way still brings is released.
        self.accepting = True
        self._isolated = sorted(name for name, handler in app.handlers.items() if handler.isolated)
        self._children: ProcessRunner | None = None
        if children is not None:
            self._children = ProcessRunner(self._judge, self._take, children, self._on_child_free)
        elif self._isolated:
            raise ConfigError(
                f'task {self._isolated[0]!r} has executor="process", and this worker was given no command that starts '
                "child processes: run the app with pgtasks worker"
            )

    def _on_child_free(self) -> None:
        self.slot_freed.set()
        self.child_freed.set()

    def warm_up(self) -> None:
        """Start what the first task would otherwise wait for."""
        if self._children is not None and self._isolated:
            self._children.warm_up()

    def held(self) -> list[tuple[int, int]]:
        """Give (task id, lease id) of the running tasks; callable from any thread."""
        return [(attempt.task.id, attempt.task.lease_id) for attempt in list(self._running)]

    @property
    def running(self) -> int:
        """How many attempts have no outcome yet."""
        return len(self._running) + self._starting

    @property
    def stuck(self) -> int:
        """How many handlers were abandoned and still occupy their slot."""
        return len(self._stuck)

    @property
    def handlers_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop of async handlers, None before the first of them."""
        return None if self._async is None else self._async.loop

    def children_free(self) -> int:
        """Say how many tasks could start in a process of their own now.

        A worker without child processes runs a suspect in its own, and nothing beside it. (What is
        stuck has been decided about: nothing of it could be lost.)
        """
        if self._children is not None:
            return self._children.free()
        return 0 if self.running else 1

    @property
    def children_failing(self) -> bool:
        """Whether child processes are needed and none can be started for now."""
        return self._children is not None and self._children.failing

    @property
    def exclusive(self) -> bool:
        """Whether a suspect runs in this very process, alone, so that nothing may start beside it."""
        if self._children is not None:
            return False
        return len(self._running) == 1 and next(iter(self._running)).task.losses > 0

    def stuck_queues(self) -> list[str]:
        """Name the queues whose own slots are all stuck."""
        counts = Counter(attempt.queue for attempt in self._stuck)
        return sorted(queue for queue, count in counts.items() if count >= (self._slots.limit(queue) or float("inf")))

    def start(self, queue: str, tasks: list[Claimed], *, soon: bool = False) -> None:
        """Run a claimed batch; ``soon`` lets the engine send its next claim first, without the handlers in its way."""
        self._slots.take(queue, len(tasks))
        # Runners that had to be made first might fail, which whoever claims must hear.
        if soon and (self._async or self._threads):
            self._starting += len(tasks)
            self._engine_loop.call_soon(self._begin_soon, queue, tasks)
        else:
            self._begin(queue, tasks)

    def _begin_soon(self, queue: str, tasks: list[Claimed]) -> None:
        self._starting -= len(tasks)
        self._begin(queue, tasks)

    def _begin(self, queue: str, tasks: list[Claimed]) -> None:
        now = time.monotonic()
        handlers = self._app.handlers
        coroutines: list[Attempt] = []
        functions: list[Attempt] = []
        isolated: list[Attempt] = []
        returned: Finished = []
        for task in tasks:
            handler = handlers.get(task.name)
            if handler is None or not self.accepting:
                returned.append(self._returned(queue, task, now))
                continue
            attempt = Attempt(task, handler, queue, now)
            self._running[attempt] = None
            if self._children is not None and (handler.isolated or task.losses):
                isolated.append(attempt)
            else:
                (coroutines if handler.kind == "async" else functions).append(attempt)
        if self._children is not None and isolated:
            self._children.submit(isolated)
        if coroutines:
            self._async_runner().submit(coroutines)
        if functions:
            self._thread_runner().submit(functions)
        if returned:
            self._take(returned)

    def _returned(self, queue: str, task: Claimed, now: float) -> tuple[Attempt, Outcome]:
        """Give a task back that came too late, or that no handler fits (claims name the handlers)."""
        if not self.accepting:
            return Attempt(task, _NOBODY, queue, now), Released()
        events.error("claimed a task without a handler", task_id=task.id, task=task.name)
        return Attempt(task, _NOBODY, queue, now), Snoozed(UNKNOWN_DELAY_S)

    def _async_runner(self) -> AsyncRunner:
        if self._async is None:
            self._async = AsyncRunner(self._judge, self._deliver)
        return self._async

    def _thread_runner(self) -> ThreadRunner:
        if self._threads is None:
            self._threads = ThreadRunner(self._judge, self._deliver, self._slots.total)
        return self._threads

    def _deliver(self, finished: Finished) -> None:
        """Take outcomes from a runner's thread to the engine's loop, unless that has ended."""
        with contextlib.suppress(RuntimeError):
            self._engine_loop.call_soon_threadsafe(self._take, finished)

    def _take(self, finished: Finished) -> None:
        outcomes: Finished = []
        for queue, count in Counter(attempt.queue for attempt, _ in finished).items():
            self._slots.give_back(queue, count)
        for attempt, outcome in finished:
            if attempt.abandoned:
                self._stuck.discard(attempt)
                events.info("stuck handler ended", **facts_of(attempt))
                continue
            self._running.pop(attempt, None)
            outcomes.append((attempt, outcome))
        self.slot_freed.set()
        if outcomes:
            self._reporter.report(outcomes)
            if events.LOGGER.isEnabledFor(logging.DEBUG):
                report_completed(outcomes)
            self._on_outcomes(outcomes)

    def _stop(self, attempt: Attempt, reason: BaseException) -> None:
        if attempt.stop(reason) and attempt.runner is not None:
            attempt.runner.interrupt(attempt)

    def cancel(self, task_id: int) -> None:
        """Stop a task because somebody cancelled it; nothing happens when it is not running here."""
        for attempt in list(self._running):
            if attempt.task.id == task_id:
                self._stop(attempt, CancelRequested())

    def lose(self, lease_ids: Collection[int], why: str) -> None:
        """Stop the tasks of leases that ended; whatever they still do is dropped."""
        self._end([attempt for attempt in self._running if attempt.task.lease_id in lease_ids], LeaseLost, why)

    def lose_tasks(self, tasks: Collection[tuple[int, int]], why: str) -> None:
        """Stop single tasks, (task id, lease id), that no longer belong to their lease."""
        self._end(
            [attempt for attempt in self._running if (attempt.task.id, attempt.task.lease_id) in tasks], LeaseLost, why
        )

    def doubt(self, lease_ids: Collection[int], why: str) -> None:
        """Stop the tasks of leases that may have ended; they are given back if they have not."""
        self._end([attempt for attempt in self._running if attempt.task.lease_id in lease_ids], LeaseInDoubt, why)

    def _end(self, attempts: list[Attempt], reason: type[LeaseLost | LeaseInDoubt], why: str) -> None:
        for attempt in attempts:
            if reason is LeaseLost and isinstance(attempt.stop_reason, LeaseInDoubt):
                attempt.stop_reason = None
        fresh = [attempt for attempt in attempts if attempt.stop_reason is None]
        for attempt in fresh:
            self._stop(attempt, reason(f"the lease of task {attempt.task.id} ended: {why}"))
        if fresh:
            events.warning(
                "lease lost" if reason is LeaseLost else "lease in doubt",
                why=why,
                leases=sorted({attempt.task.lease_id for attempt in fresh})[:10],
                tasks=[attempt.task.id for attempt in fresh][:10],
                count=len(fresh),
            )

    def stop_all(self) -> None:
        """Stop every running task; each is released unless its handler ends otherwise first."""
        for attempt in list(self._running):
            self._stop(attempt, StopRequested())

    def abandon_all(self) -> None:
        """Decide about everything that still runs, without its handler: the process is about to end."""
        if self._children is not None:
            self._children.end_now()
        self._abandon(list(self._running))

    async def watch(self) -> float:
        """Do one round of the watchdog: time limits, untrusted leases, ignored stops, a blocked loop."""
        now = time.monotonic()
        untrusted = self._leases.untrusted(now)
        self.doubt(untrusted.in_doubt, "the database did not answer in time")
        self.lose(untrusted.let_go, "this process stood still for too long to renew it")
        blockage = self._blockage()
        ignored = []
        for attempt in self._running:
            if blockage is not None and blockage.is_victim(attempt):
                attempt.excuse(blockage.unexcused_s)
            # One in doubt that does not stop goes on: its outcome counts if the lease turns out to be kept.
            if attempt.stop_reason is not None and not isinstance(attempt.stop_reason, LeaseInDoubt):
                if attempt.ignores_stop(now, ABANDON_S):
                    ignored.append(attempt)
            elif attempt.is_late(now) and attempt.deadline is not None:
                limit_s = attempt.deadline - attempt.started
                attempt.stop_reason = None
                self._stop(attempt, TaskTimeout(f"ran longer than its timeout of {limit_s:g} s"))
        if ignored:
            self._abandon(ignored)
        if blockage is not None:
            self._give_up_blocked(blockage)
        self._close_left_loops()
        self._reporter.sum_up()
        return WATCH_S

    def _blockage(self) -> Blockage | None:
        if self._async is None or not (self._running or self._stuck):
            return None
        return self._loop_watch.look(self._async)

    def _give_up_blocked(self, blockage: Blockage) -> None:
        """Give the loop up if an abandoned handler blocks it, and give its neighbours back uncharged."""
        if blockage.seconds < ABANDON_S or not any(
            attempt is blockage.culprit or (blockage.culprit is None and attempt.runner is blockage.runner)
            for attempt in self._stuck
        ):
            return
        neighbours = [attempt for attempt in self._running if attempt.runner is blockage.runner]
        for attempt in neighbours:
            self._stop(attempt, StopRequested())
        self._left_loops.append(blockage.runner)
        self._async, self.gave_up_loop = None, True
        events.error(
            "handlers' loop given up",
            **(facts_of(blockage.culprit) if blockage.culprit else {}),
            blocked_s=round(blockage.seconds, 1),
            released=len(neighbours),
            stuck=len(self._stuck) + len(neighbours),
        )
        self._set_aside(neighbours)

    def _close_left_loops(self) -> None:
        """End loops that were given up and have nothing to run any more."""
        for runner in list(self._left_loops):
            if not any(attempt.runner is runner for attempt in self._stuck):
                self._left_loops.remove(runner)
                runner.close(0.0)

    def _abandon(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            events.warning(
                "handler ignored its stop",
                **facts_of(attempt),
                reason=type(attempt.stop_reason or StopRequested()).__name__,
                stuck=len(self._stuck) + 1,
            )
            self._set_aside([attempt])

    def _set_aside(self, attempts: list[Attempt]) -> None:
        """Decide about these attempts without their handlers, which keep their slots until they end."""
        outcomes: Finished = []
        for attempt in attempts:
            attempt.abandoned = True
            self._running.pop(attempt, None)
            self._stuck.add(attempt)
            outcome = self._judge.judge(attempt, attempt.stop_reason or StopRequested())
            outcomes.append((attempt, outcome))
        if outcomes:
            self._reporter.report(outcomes)
            self._on_outcomes(outcomes)
            # After-hooks are users' code: not on this loop.
            threading.Thread(target=self._hook, args=(outcomes,), name="pgtasks-hooks", daemon=True).start()

    def _hook(self, outcomes: Finished) -> None:
        for attempt, outcome in outcomes:
            self._judge.run_after(attempt, outcome)

    def close(self) -> None:
        """End the runners; where a handler is stuck there is little to wait for."""
        self._reporter.sum_up(at_once=True)
        for loop in self._left_loops:
            loop.close(0.0)
        for runner in (self._async, self._threads, self._children):
            if runner is not None:
                runner.close(CLOSE_STUCK_S if self._stuck else CLOSE_S)


# Stands in for the handler of a task whose handler is missing.
_NOBODY = describe_handler(lambda: None, name="", queue="", priority=0, retry=Retry(), timeout_s=None)
