"""One attempt of one task: from the claimed row to the handler's call, and from its end to an outcome.

Everything here runs where the handler runs, inside the task's own error handling: a payload
that cannot be read, arguments that do not fit, a hook that raises and a result that cannot be
stored concern this task and no other.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from types import CodeType, CoroutineType, TracebackType
from typing import Any, Protocol

from pgtasks import events
from pgtasks.app import AfterHook, BeforeHook
from pgtasks.context import Context
from pgtasks.engine import traces
from pgtasks.errors import LeaseLost, PayloadError, PermanentError, PgtasksError, ProcessDied, Steer, TaskTimeout
from pgtasks.handlers import Handler
from pgtasks.model import Claimed
from pgtasks.outcome import AttemptOutcome, CancelRequested, Completed, Failure, Outcome, decide, max_attempts_of
from pgtasks.payload import RESULT_BYTES_MAX, dumps, loads, storable

CLASS_CHARACTERS_MAX = 200
MESSAGE_CHARACTERS_MAX = 4_000
TRACEBACK_CHARACTERS_MAX = 16_000
# So many failures are kept to be used again, if their texts are no longer than that: a few MB.
FAILURES_KEPT, KEPT_CHARACTERS_MAX = 64, 10_000
_NOT_AWAITED = (
    "the handler returned a coroutine that nobody awaited, so its work was not done: make it an async def, "
    "or await what it returns"
)


class Runner(Protocol):
    """Where attempts run; what becomes of them it delivers by itself."""

    def submit(self, batch: list[Attempt]) -> None:
        """Start these attempts."""

    def interrupt(self, attempt: Attempt) -> None:
        """Make an attempt's handler end, which has been told to stop, if that is possible."""

    def close(self, limit_s: float) -> None:
        """End what waits; handlers that still run get this long."""


class Attempt:
    """A claimed task in this process, from its claim until its outcome is decided.

    ``stop_reason`` is why the engine stopped it, if it did. It is set once, before the
    handler is interrupted, so that the interruption can be told from one of the handler's own.
    """

    __slots__ = (
        "abandoned",
        "begun",
        "context",
        "deadline",
        "excused_s",
        "handler",
        "hooked",
        "queue",
        "runner",
        "settled",
        "started",
        "stop_reason",
        "stopped_at",
        "task",
        "timeout_s",
    )

    def __init__(self, task: Claimed, handler: Handler, queue: str, started: float) -> None:
        self.task = task
        self.handler = handler
        self.queue = queue
        self.timeout_s = handler.timeout_s if task.timeout_s is None else task.timeout_s
        self.begin(started)
        # How long others kept it from going on; its time limits are that much later.
        self.excused_s = 0.0
        self.runner: Runner | None = None
        self.context: Context | None = None
        self.stop_reason: BaseException | None = None
        self.stopped_at = 0.0
        self.begun = False
        self.abandoned = False
        self.hooked = False
        self.settled = False

    def begin(self, now: float) -> None:
        """Let its time begin."""
        self.started = now
        self.deadline = None if self.timeout_s is None else now + self.timeout_s

    def hold(self) -> None:
        """Let its time stand still, until it begins anew."""
        self.deadline = None

    @property
    def max_attempts(self) -> int:
        """The limit on starts of this task."""
        return max_attempts_of(self.task.max_attempts, self.handler.retry)

    def is_late(self, now: float) -> bool:
        """Tell whether its timeout is over."""
        return self.deadline is not None and now >= self.deadline + self.excused_s

    def ignores_stop(self, now: float, limit_s: float) -> bool:
        """Tell whether the handler was told to stop longer ago than that (nobody asks when it has stopped)."""
        return self.stop_reason is not None and now > self.stopped_at + limit_s

    def excuse(self, seconds: float) -> None:
        """Note time in which the handler could do nothing, through no fault of its own."""
        self.excused_s += seconds
        self.stopped_at += seconds
        if self.context is not None and self.context.deadline is not None:
            self.context.deadline += seconds

    def stop(self, reason: BaseException) -> bool:
        """Note why the handler is to end and tell its context; only the first reason counts."""
        if self.stop_reason is not None:
            return False
        self.stop_reason = reason
        self.stopped_at = time.monotonic()
        context = self.context
        if context is not None:
            context._stop_for(lease_lost=isinstance(reason, LeaseLost))  # noqa: SLF001 - the engine's side of Context
        return True

    def make_context(self) -> Context:
        """Give this attempt's context, made on first use."""
        if self.context is None:
            task = self.task
            self.context = Context(
                task_id=task.id,
                name=task.name,
                queue=self.queue,
                attempt=task.attempt,
                max_attempts=self.max_attempts,
                lease_id=task.lease_id,
                run_at=task.run_at,
                deadline=None if self.deadline is None else self.deadline + self.excused_s,
                headers=_headers(task.headers),
            )
            if self.stop_reason is not None:
                self.context._stop_for(lease_lost=isinstance(self.stop_reason, LeaseLost))  # noqa: SLF001 - the engine's side, as above
        return self.context


def _headers(text: str | None) -> dict[str, Any]:
    found = loads(text, root="headers") if text else None
    return found if isinstance(found, dict) else {}


class Judge:
    """Prepares attempts and decides their outcomes, by the hooks and policies of one app."""

    def __init__(self, before: list[BeforeHook], after: list[AfterHook], seed: float | None = None) -> None:
        self._before, self._after = before, after
        self._seed = seed
        self._local = threading.local()
        self._hook_lock = threading.Lock()

    def arguments(self, attempt: Attempt) -> dict[str, Any]:
        """Give the handler's arguments, after the before-hooks; raises whatever is wrong with them."""
        attempt.begun = True
        if attempt.stop_reason is not None:
            raise attempt.stop_reason
        text = attempt.task.payload
        arguments = attempt.handler.arguments_of({} if text == "{}" else loads(text), attempt.make_context)
        for hook in self._before:
            hook(attempt.make_context())
        return arguments

    def returned(self, attempt: Attempt, result: object) -> Outcome:
        """Decide about an attempt whose handler returned, and run the after-hooks.

        A handler that asked whether to stop, was told so, and then returned has stopped: its
        task ends as the reason for that says. One that never asked has done its work.
        """
        if attempt.stop_reason is not None and attempt.context is not None and attempt.context.was_told_to_stop:
            return self.raised(attempt, attempt.stop_reason)
        if result is None:
            outcome: Outcome = _NO_RESULT
        elif type(result) is CoroutineType:
            # Whatever the coroutine was to do has not been done, and would not be on a retry.
            result.close()
            return self.raised(attempt, PermanentError(_NOT_AWAITED))
        else:
            outcome = _completed(result)
        self.run_after(attempt, outcome)
        return outcome

    def raised(self, attempt: Attempt, error: BaseException) -> Outcome:
        """Decide about an attempt that ended in an exception, and run the after-hooks; never raises."""
        outcome = self.judge(attempt, error)
        self.run_after(attempt, outcome)
        return outcome

    def judge(self, attempt: Attempt, error: BaseException) -> Outcome:
        """Decide about an attempt that ended in an exception; never raises.

        What a handler raises after it was stopped is taken for a consequence of the stop, unless
        it says on purpose what becomes of the task: code that turns a cancellation into an error
        of its own must not cost an attempt when a worker stops.
        """
        failure = describe(error)
        reason = attempt.stop_reason
        if reason is not None and reason is not error and not isinstance(error, Steer):
            failure = replace(describe(reason), traceback=failure.traceback)
            error = reason
        elif isinstance(error, LeaseLost) and reason is None:
            # Raised by a handler for reasons of its own: the lease is in good order.
            error = PgtasksError(failure.message)
        try:
            return self._decide(attempt, error, failure)
        except BaseException as second:  # noqa: BLE001 - a steering exception's attributes are the handler's code
            return self._decide(attempt, second, describe(second))

    def _decide(self, attempt: Attempt, error: BaseException, failure: Failure) -> Outcome:
        return decide(
            error,
            failure,
            attempt=attempt.task.attempt,
            max_attempts=attempt.max_attempts,
            policy=attempt.handler.retry,
            rng=self._rng(),
        )

    def run_after(self, attempt: Attempt, outcome: Outcome) -> None:
        """Run the after-hooks, once for each attempt, whoever decided about it; never raises."""
        if not self._after:
            return
        with self._hook_lock:
            if attempt.hooked:
                return
            attempt.hooked = True
        for hook in self._after:
            try:
                hook(attempt.make_context(), outcome)
            except BaseException as error:  # noqa: BLE001 - the outcome is decided; a hook cannot change it
                events.LOGGER.error(
                    "after-hook failed",
                    exc_info=error,
                    extra={"pgtasks": {"task_id": attempt.task.id, "task": attempt.task.name}},
                )

    def _rng(self) -> random.Random:
        rng: random.Random | None = getattr(self._local, "rng", None)
        if rng is None:
            rng = self._local.rng = random.Random(self._seed)
        return rng


# What most handlers return is nothing, and this cannot be changed.
_NO_RESULT = Completed()


def _completed(result: object) -> Completed:
    """Keep a result, or say why it was not kept: the work is done either way."""
    if type(result) is int and -(2**63) <= result < 2**63:
        return Completed(str(result))
    try:
        return Completed(dumps(result, root="result", bytes_max=RESULT_BYTES_MAX))
    except PayloadError as error:
        note = str(error)
    except BaseException as error:  # noqa: BLE001 - a result's own code may raise anything while it is encoded
        note = f"{type(error).__name__}: {text_of(error)}"
    return Completed(None, storable(f"result not stored: {note}", MESSAGE_CHARACTERS_MAX))


def describe(error: BaseException) -> Failure:
    """Put an exception into words that any text column takes; never raises."""
    message = text_of(error)
    trace, place = _way_of(error)
    if place is None:
        return _failure(error, message, trace)
    kind = type(error)
    key = (id(kind), message, place)
    known = _known.get(key)
    if known is not None:
        return known[0]
    failure = _failure(error, message, trace)
    if len(message) + len(failure.traceback) <= KEPT_CHARACTERS_MAX:
        if len(_known) >= FAILURES_KEPT:
            _known.clear()
        _known[key] = failure, kind, traces.codes_of(trace)
    return failure


def _way_of(error: BaseException) -> tuple[TracebackType | None, traces.Place | None]:
    """Give the frames that an exception left, read once: threads that raise the same one change them meanwhile."""
    try:
        trace = error.__traceback__
        return trace, traces.place_of(error, trace)
    except BaseException:  # noqa: BLE001 - an exception's attributes may be the handler's code
        return None, None


# Where a service is away, the same failure comes thousands of times a second. By the identities of its kind and of
# the code that it came through, which are kept as long as the failure is.
_known: dict[tuple[int, str, traces.Place], tuple[Failure, type[BaseException], list[CodeType]]] = {}


def _failure(error: BaseException, message: str, trace: TracebackType | None) -> Failure:
    kind = type(error)
    error_class = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    outcome: AttemptOutcome = "failed"
    if isinstance(error, TaskTimeout):
        outcome = "timed_out"
    elif isinstance(error, CancelRequested):
        outcome = "cancelled"
    elif isinstance(error, ProcessDied):
        outcome = "worker_lost"
    return Failure(
        error_class=storable(error_class, CLASS_CHARACTERS_MAX),
        message=storable(message, MESSAGE_CHARACTERS_MAX),
        traceback=storable(_traceback(error, trace), TRACEBACK_CHARACTERS_MAX),
        outcome=outcome,
    )


def text_of(error: BaseException) -> str:
    """Give an exception's message; one whose own ``__str__`` fails is named instead."""
    try:
        # A subclass of str, with code of its own, becomes a plain one.
        return str.__str__(str(error))
    except BaseException as second:  # noqa: BLE001 - __str__ is the handler's code
        return f"<{type(error).__name__} whose message cannot be shown: {type(second).__name__}>"


def _traceback(error: BaseException, trace: TracebackType | None) -> str:
    try:
        return traces.text_of(error, _own_frames_skipped(trace))
    except BaseException as second:  # noqa: BLE001 - as above; also RecursionError on endless chains
        return f"<traceback cannot be shown: {type(second).__name__}>"


def _own_frames_skipped(found: TracebackType | None) -> TracebackType | None:
    """Start at the handler's first frame, if there is one."""
    here = found
    while here is not None and here.tb_frame.f_globals.get("__name__", "").startswith("pgtasks.engine"):
        here = here.tb_next
    return here or found
