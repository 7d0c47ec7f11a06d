"""Where handlers run: ``async def`` on a second event loop, ``def`` in a pool of threads.

Never on the engine's loop: a handler that blocks stops its neighbours, not the heartbeats.
Attempts come and outcomes go in batches, because waking another thread costs more than
running a small handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

from pgtasks import events
from pgtasks.context import RUNNING
from pgtasks.engine.attempt import Attempt, Judge
from pgtasks.outcome import Outcome

Finished = list[tuple[Attempt, Outcome]]
Deliver = Callable[[Finished], None]
# How long background tasks that handlers left on the loop get to end.
CLEAR_S = 0.2
# Of the task that runs, and of all that it starts.
_OWNER: ContextVar[Attempt | None] = ContextVar("pgtasks_attempt", default=None)


class AsyncRunner:
    """Runs ``async def`` handlers on an event loop in a thread of its own."""

    def __init__(self, judge: Judge, deliver: Deliver) -> None:
        self._judge, self._deliver = judge, deliver
        self._finished: Finished = []
        # The loop itself keeps only weak references to its tasks.
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}
        # Whose the tasks are that handlers start themselves, to name the one that blocks the loop.
        self._owners: weakref.WeakKeyDictionary[asyncio.Future[Any], Attempt] = weakref.WeakKeyDictionary()
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(self._make_task)
        self._closing = False
        self._thread = threading.Thread(target=self._run_loop, name="pgtasks-handlers", daemon=True)
        self._thread.start()
        self._echo_at = time.monotonic()
        self._asked_at = self._echo_at

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The handlers' loop."""
        return self._loop

    def submit(self, batch: list[Attempt]) -> None:
        """Start these attempts on the loop."""
        for attempt in batch:
            attempt.runner = self
        self._loop.call_soon_threadsafe(self._start, batch)

    def blocked_for_s(self) -> float:
        """Tell for how long the loop has not answered; asks it anew each time."""
        if self._echo_at < self._asked_at:
            return time.monotonic() - self._asked_at
        self._asked_at = time.monotonic()
        self._loop.call_soon_threadsafe(self._echo)
        return 0.0

    def blocking(self) -> Attempt | None:
        """Give the attempt whose handler, or a task that it started, runs on the loop at this moment."""
        current = asyncio.current_task(self._loop)
        if current is None:
            return None
        owner = self._owners.get(current)
        return owner or next((attempt for attempt, task in list(self._tasks.items()) if task is current), None)

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **more)
        owner = _OWNER.get()
        if owner is not None:
            self._owners[task] = owner
        return task

    def interrupt(self, attempt: Attempt) -> None:
        """Cancel the handler's task."""
        self._loop.call_soon_threadsafe(self._cancel, attempt)

    def _cancel(self, attempt: Attempt) -> None:
        # A task that has not begun would end without running a line of ours, and its attempt
        # without an outcome. When it begins, it sees the stop reason.
        task = self._tasks.get(attempt)
        if task is not None and attempt.begun:
            task.cancel(str(attempt.stop_reason) or None)

    def close(self, limit_s: float) -> None:
        """End the loop and what handlers left on it; a handler that blocks it is left to its thread."""
        self._closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=limit_s)

    def _echo(self) -> None:
        self._echo_at = time.monotonic()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            # What a handler started besides may raise SystemExit or stop the loop as well.
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - the other handlers' tasks go on
                events.LOGGER.error("a background task of a handler tried to end the process", exc_info=error)
        with contextlib.suppress(BaseException):
            self._loop.run_until_complete(self._clear())
            self._loop.close()

    async def _clear(self) -> None:
        """Cancel what is left, and close what lives as long as the loop (the pool of aenqueue)."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CLEAR_S)
        await self._loop.shutdown_asyncgens()

    def _start(self, batch: list[Attempt]) -> None:
        for attempt in batch:
            self._tasks[attempt] = asyncio.Task(self._run(attempt), loop=self._loop)

    async def _run(self, attempt: Attempt) -> None:
        """Run one attempt; whatever its handler raises ends here, or it would end the loop."""
        _OWNER.set(attempt)
        RUNNING.set(attempt.task)
        try:
            result = await attempt.handler.function(**self._judge.arguments(attempt))
            outcome = self._judge.returned(attempt, result)
        except BaseException as error:  # noqa: BLE001 - SystemExit or KeyboardInterrupt would stop the loop
            outcome = self._judge.raised(attempt, error)
        del self._tasks[attempt]
        if not self._finished:
            # In no task's context: what the engine does from there on belongs to none.
            self._loop.call_soon(self._hand_over, context=Context())
        self._finished.append((attempt, outcome))

    def _hand_over(self) -> None:
        finished, self._finished = self._finished, []
        self._deliver(finished)


class ThreadRunner:
    """Runs ``def`` handlers in up to ``threads_max`` daemon threads, made when needed."""

    def __init__(self, judge: Judge, deliver: Deliver, threads_max: int) -> None:
        self._judge, self._deliver, self._threads_max = judge, deliver, threads_max
        self._inbox: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._finished: deque[tuple[Attempt, Outcome]] = deque()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0

    def submit(self, batch: list[Attempt]) -> None:
        """Queue these attempts, with as many threads as it takes to start them at once."""
        for attempt in batch:
            attempt.runner = self
        with self._lock:
            missing = max(0, min(len(batch) - self._idle, self._threads_max - self._threads))
            self._threads += missing
            # Spoken for: a thread counts as idle again only after its next attempt.
            self._idle = max(0, self._idle - len(batch))
        for attempt in batch:
            self._inbox.put(attempt)
        for number in range(missing):
            try:
                threading.Thread(target=self._work, name="pgtasks-handler", daemon=True).start()
            except RuntimeError as error:
                # The system's limit on threads: the attempts wait for the threads there are.
                self._no_thread(missing - number, error)
                return

    def _no_thread(self, missing: int, error: RuntimeError) -> None:
        with self._lock:
            self._threads -= missing
            alone = self._threads == 0
        events.error("no more threads for handlers", threads=self._threads, error=str(error))
        if alone:
            self._end_unstarted(error)

    def _end_unstarted(self, error: RuntimeError) -> None:
        """Fail what no thread will ever take."""
        finished: Finished = []
        with contextlib.suppress(queue.Empty):
            while (attempt := self._inbox.get_nowait()) is not None:
                finished.append((attempt, self._judge.judge(attempt, error)))
        self._deliver(finished)

    def interrupt(self, attempt: Attempt) -> None:
        """Do nothing: a thread cannot be interrupted; its handler may ask ``Context.cancelled``."""

    def close(self, limit_s: float) -> None:  # noqa: ARG002 - idle threads end by themselves, at once
        """Let idle threads end."""
        for _ in range(self._threads):
            self._inbox.put(None)

    def _work(self) -> None:
        while (attempt := self._inbox.get()) is not None:
            # In a context of its own: what a handler sets in context variables ends with it.
            outcome = copy_context().run(self._run, attempt)
            with self._lock:
                self._idle += 1
                first = not self._finished
                self._finished.append((attempt, outcome))
            if first:
                self._hand_over()

    def _run(self, attempt: Attempt) -> Outcome:
        RUNNING.set(attempt.task)
        try:
            result = attempt.handler.function(**self._judge.arguments(attempt))
            return self._judge.returned(attempt, result)
        except BaseException as error:  # noqa: BLE001 - SystemExit would end this thread and lose the task
            return self._judge.raised(attempt, error)

    def _hand_over(self) -> None:
        with self._lock:
            finished = list(self._finished)
            self._finished.clear()
        if finished:
            self._deliver(finished)
