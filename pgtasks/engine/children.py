"""The pool of child processes: isolated tasks, one at a time in each child.

::

              start             ready            task              outcome
    (nothing) ─────► starting ─────────► idle ─────────► busy ─────────────► idle
                        │                 │  idle too long │ limit of tasks,
                        │ ends            │                │ or interrupted
                        ▼                 ▼                ▼
                     backoff           leaving ◄───────────┘

A child that ends while busy fails its own task, at once, and no other. It is told to stop a task
before that: what does not end within ``KILL_S`` is killed, and the task ends as the reason for
the stop says. So an isolated task never keeps its slot for longer than that.

A child that ends before it is ready, or is lost before it has run anything, says something about
the app or the machine and nothing about a task. The tasks that wait for a child are given back,
no attempt charged, and no more are taken until a child, started after a while that doubles each
time, is ready.

All of it runs on the engine's loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pgtasks import events
from pgtasks.engine.attempt import Attempt, Judge
from pgtasks.engine.child import REAP_S, Child
from pgtasks.engine.crossing import outcome_in, reason_out, task_out
from pgtasks.engine.frames import Message
from pgtasks.engine.runners import Deliver, Finished
from pgtasks.errors import PayloadError, ProcessDied
from pgtasks.outcome import Outcome, Released, StopRequested
from pgtasks.payload import storable

# How long a handler that was told to stop gets to end.
KILL_S = 2.0
# How long a child gets to import the app.
START_S = 120.0
RETRY_S, RETRY_S_MAX = 1.0, 60.0
# So much is shown of why a child did not start.
FAILURE_CHARACTERS_MAX = 2_000
# After so many failed starts in a row it is not by chance that there are no children.
FAILING = 3
# For how long a child beyond the first may have nothing to do.
IDLE_S = 60.0


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """How to start a child process, how many, and after how many tasks (0: never) one is replaced.

    ``folder`` is where one starts; None stands for the folder the worker is in by then.
    """

    command: Sequence[str]
    children: int
    tasks_max: int = 0
    folder: str | None = None


class ProcessRunner:
    """Runs isolated tasks in up to ``options.children`` processes, started when they are needed.

    ``deliver`` takes outcomes, on the engine's loop; ``on_free`` is called when a child may have
    become free.
    """

    def __init__(self, judge: Judge, deliver: Deliver, options: ChildOptions, on_free: Callable[[], None]) -> None:
        self._judge, self._deliver, self._options, self._on_free = judge, deliver, options, on_free
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Attempt] = deque()
        self._starting: set[Child] = set()
        # The last one is the warmest and is taken first.
        self._idle: list[Child] = []
        self._busy: dict[Attempt, Child] = {}
        self._leaving: set[Child] = set()
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._shrinking: asyncio.TimerHandle | None = None
        self._closing = False
        self.started = 0

    def free(self) -> int:
        """Tell how many more tasks could start, or wait for a child that is sure to come."""
        if self._closing:
            return 0
        taken = len(self._busy) + len(self._leaving) + len(self._waiting)
        if self._failures:
            return max(0, len(self._idle) - len(self._waiting))
        return max(0, self._options.children - taken)

    @property
    def failing(self) -> bool:
        """Whether no child is to be had for now: the last starts failed, and none runs, is idle or starts."""
        return self._failures >= FAILING and not (self._busy or self._idle or self._starting)

    @property
    def retry_in_s(self) -> float:
        """In how many seconds the next start is tried, 0 when none is put off."""
        return 0.0 if self._retry is None else max(0.0, self._retry.when() - self._loop.time())

    @property
    def pids(self) -> list[int]:
        """The process ids of the children there are."""
        return sorted(child.pid for child in self._all())

    def _all(self) -> Iterable[Child]:
        return [*self._starting, *self._idle, *self._busy.values(), *self._leaving]

    def warm_up(self) -> None:
        """Start the first child, so that the first task need not wait for it."""
        self._start(1)

    def submit(self, batch: list[Attempt]) -> None:
        """Run these attempts as children are free; their time begins when one takes them."""
        for attempt in batch:
            attempt.runner = self
            attempt.hold()
        self._waiting.extend(batch)
        self._dispatch()
        if self._failures:
            # Claimed while a start failed.
            self._give_back()

    def interrupt(self, attempt: Attempt) -> None:
        """Tell the handler why it is to end, and kill it if it does not."""
        child = self._busy.get(attempt)
        if child is not None:
            child.send({"stop": reason_out(_reason(attempt)), "ticket": child.tickets})
            child.kill_in(KILL_S, partial(self._say_killed, child, attempt))
        elif attempt in self._waiting:
            self._waiting.remove(attempt)
            self._loop.call_soon(self._decided, [attempt])

    def _say_killed(self, child: Child, attempt: Attempt) -> None:
        events.warning(
            "child process killed",
            pid=child.pid,
            task_id=attempt.task.id,
            task=attempt.task.name,
            reason=type(_reason(attempt)).__name__,
            ignored_s=KILL_S,
        )

    def end_now(self) -> None:
        """Decide about everything at once, and kill what still runs: the worker is about to end."""
        self._closing = True
        left = [*self._waiting, *self._busy]
        self._waiting.clear()
        for child in list(self._busy.values()):
            child.attempt = None
            child.kill()
            self._leaving.add(child)
        self._busy.clear()
        self._decided(left)

    def close(self, limit_s: float) -> None:
        """End the children; those that take longer are killed."""
        self._closing = True
        for timer in (self._retry, self._shrinking):
            if timer is not None:
                timer.cancel()
        children = list(self._all())
        for child in self._idle:
            child.leave()
        for child in {*self._starting, *self._busy.values()}:
            child.kill()
        until = time.monotonic() + limit_s
        for child in children:
            if not child.wait(max(0.0, until - time.monotonic())):
                child.kill()
                child.wait(REAP_S)
            child.close()

    # Starting.

    def _start(self, count: int) -> None:
        for _ in range(count):
            try:
                child = Child(self._options.command, self._options.folder, self._on_message, self._on_end)
            except (OSError, RuntimeError) as error:
                self._start_failed(f"{type(error).__name__}: {error}")
                return
            self.started += 1
            self._starting.add(child)
            child.kill_in(START_S, partial(self._too_slow, child))

    def _too_slow(self, child: Child) -> None:
        child.failure = child.failure or f"it was not ready within {START_S:g} s"

    def _start_failed(self, why: str) -> None:
        """Say why no child comes up, and give back what would have to wait for one."""
        if self._retry is None:
            self._failures += 1
            delay_s = min(RETRY_S_MAX, RETRY_S * 2.0 ** min(self._failures - 1, 10))
            self._retry = self._loop.call_later(delay_s, self._try_again)
            events.error("child process did not start", why=why, retry_in_s=delay_s, children=len(list(self._all())))
        self._give_back()

    def _give_back(self) -> None:
        """Give back what would have to wait for a child that is busy, or for one that does not come."""
        finished: Finished = []
        while len(self._waiting) > len(self._idle) + len(self._starting):
            finished.append((self._waiting.pop(), Released()))
        if finished:
            events.warning("isolated tasks given back", count=len(finished), advice="they wait for a child process")
            self._loop.call_soon(self._deliver, finished)

    def _try_again(self) -> None:
        self._retry = None
        if not self._closing and not self._starting and self._room() > 0:
            self._start(1)

    def _room(self) -> int:
        return self._options.children - len(list(self._all()))

    # Running.

    def _dispatch(self) -> None:
        """Give waiting attempts to idle children, and start as many as are missing."""
        while self._waiting and self._idle:
            child = self._idle.pop()
            if child.believed:
                self._give(child, self._waiting.popleft())
            else:
                # It has been killed, and ends at any moment.
                self._leaving.add(child)
        if self._closing or self._failures:
            return
        missing = len(self._waiting) - len(self._starting)
        if self.started and self._room() == self._options.children:
            # One is kept warm, once there was use for it.
            missing = max(1, missing)
        self._start(min(missing, self._room()))

    def _give(self, child: Child, attempt: Attempt) -> None:
        message = {"task": task_out(attempt.task), "queue": attempt.queue, "ticket": child.tickets + 1}
        attempt.begin(time.monotonic())
        try:
            child.send(message)
        except ValueError as error:
            # A small jsonb can be a large text: 1e100000 has as many digits.
            self._idle.append(child)
            too_large = PayloadError(f"payload cannot be handed to a child process: {error}")
            self._loop.call_soon(self._decided, [attempt], too_large)
            return
        child.attempt = attempt
        child.tickets += 1
        self._busy[attempt] = child

    def _on_message(self, child: Child, message: Message) -> None:
        """Heed a child's message; raises something when it makes no sense."""
        if "outcome" in message:
            attempt = child.attempt
            if attempt is not None and message.get("ticket") == child.tickets:
                self._finished(child, attempt, outcome_in(message["outcome"]))
        elif child not in self._starting:
            raise ValueError("what is no outcome, after its start")
        elif "ready" in message:
            self._on_ready(child)
        elif "failed" not in message:
            raise ValueError("nothing that a child says at its start")
        else:
            child.failure = storable(str(message["failed"]), FAILURE_CHARACTERS_MAX)

    def _on_ready(self, child: Child) -> None:
        child.spare()
        child.failure = ""
        self._starting.discard(child)
        events.debug("child process ready", pid=child.pid, seconds=round(time.monotonic() - child.started_at, 3))
        self._failures = 0
        self._to_idle(child)
        self._dispatch()
        self._on_free()

    def _finished(self, child: Child, attempt: Attempt, outcome: Outcome) -> None:
        child.attempt = None
        del self._busy[attempt]
        used_up = bool(self._options.tasks_max) and child.tickets >= self._options.tasks_max
        # An exception that was thrown into the middle of anything may have left anything half done.
        if used_up or attempt.stop_reason is not None:
            self._let_go(child)
        else:
            child.spare()
            self._to_idle(child)
        self._dispatch()
        self._deliver([(attempt, outcome)])
        self._on_free()

    def _to_idle(self, child: Child) -> None:
        child.idle_since = time.monotonic()
        self._idle.append(child)
        if self._shrinking is None and len(self._idle) > 1 and not self._closing:
            self._shrinking = self._loop.call_later(IDLE_S, self._shrink)

    def _shrink(self) -> None:
        """Let children go that had nothing to do for a while, all but the last."""
        self._shrinking = None
        now = time.monotonic()
        while len(self._idle) > 1 and now - self._idle[0].idle_since >= IDLE_S:
            self._let_go(self._idle.pop(0))
        if len(self._idle) > 1:
            wait_s = IDLE_S - (now - self._idle[0].idle_since)
            self._shrinking = self._loop.call_later(max(0.0, wait_s), self._shrink)

    def _let_go(self, child: Child) -> None:
        self._leaving.add(child)
        child.spare()
        child.leave()

    # Ending.

    def _on_end(self, child: Child, returncode: int) -> None:
        attempt, died = child.attempt, ProcessDied.of(returncode, detail=child.failure)
        if child in self._starting:
            self._starting.discard(child)
            if not self._closing:
                self._start_failed(child.failure or str(died))
        elif attempt is not None:
            self._died(child, attempt, died, returncode)
        elif child in self._idle:
            self._idle.remove(child)
            events.warning("idle child process ended", pid=child.pid, why=str(died))
            if not child.tickets:
                self._start_failed(str(died))
        self._leaving.discard(child)
        self._dispatch()
        self._on_free()

    def _died(self, child: Child, attempt: Attempt, died: ProcessDied, returncode: int) -> None:
        child.attempt = None
        del self._busy[attempt]
        if attempt.stop_reason is None:
            facts = {"task_id": attempt.task.id, "task": attempt.task.name}
            events.info("child process ended", pid=child.pid, returncode=returncode, **facts)
        self._decided([attempt], died)

    def _decided(self, attempts: list[Attempt], error: Exception | None = None) -> None:
        """Decide about attempts without their handlers: by the reason of their stop, or else by what went wrong."""
        if not attempts:
            return
        finished = [(attempt, self._judge.judge(attempt, error or _reason(attempt))) for attempt in attempts]
        self._deliver(finished)
        # After-hooks are users' code: not on this loop.
        threading.Thread(target=self._hook, args=(finished,), name="pgtasks-hooks", daemon=True).start()

    def _hook(self, finished: Finished) -> None:
        for attempt, outcome in finished:
            self._judge.run_after(attempt, outcome)


def _reason(attempt: Attempt) -> BaseException:
    return attempt.stop_reason or StopRequested()
