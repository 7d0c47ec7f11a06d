"""The child's side: runs one task after the other, and says what became of each.

A ``def`` handler runs in the main thread, an ``async def`` on the event loop of the usual runner.
A thread reads from the worker. A stop reaches a ``def`` handler as CancelledError, raised by the
handler of SIGTERM, which that thread sends to the main one: so Python code is interrupted that
never asks, and one that waits in a system call. It is raised once, and only while the handler
runs. Other SIGTERM, SIGINT and SIGHUP do nothing: they are meant for the worker, which decides
what becomes of running tasks.

The process ends when the worker says so or is gone: at the end of file on the socket, or, where
that is not noticed because C code holds the interpreter, by the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from contextvars import copy_context
from typing import Any

from pgtasks import events
from pgtasks.app import App
from pgtasks.context import RUNNING
from pgtasks.engine import forks
from pgtasks.engine.attempt import Attempt, Judge
from pgtasks.engine.crossing import outcome_out, reason_in, task_in
from pgtasks.engine.frames import Message, Unpacker, pack
from pgtasks.engine.runners import AsyncRunner, Finished
from pgtasks.model import Claimed
from pgtasks.outcome import Outcome, Snoozed

READ_BYTES = 256 * 1024
# A task whose handler this process does not have; its code is another than the worker's.
UNKNOWN_DELAY_S = 30.0
EXIT_ORPHANED, EXIT_BROKEN = 0, 70
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1


class Isolated:
    """This process as a child of a worker, to which ``channel`` is a connected socket.

    Must be made in the main thread, before the app is imported: from then on the process ends
    with its worker.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._pid = os.getpid()
        self._main_thread = threading.get_ident()
        self._app: App | None = None
        # What is to be run, with the worker's number for it; None ends the process.
        self._inbox: queue.SimpleQueue[tuple[int, Attempt | None] | None] = queue.SimpleQueue()
        self._current: Attempt | None = None
        self._ticket = 0
        # The attempt whose handler runs in the main thread, and whether it was interrupted.
        self._interruptible: Attempt | None = None
        self._interrupted = False
        self._async: AsyncRunner | None = None
        self._ended: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        _die_with_parent()
        self._take_signals()
        forks.guard(_SIGNALS)
        os.register_at_fork(after_in_child=channel.close)
        threading.Thread(target=self._listen, name="pgtasks-parent", daemon=True).start()

    def send(self, message: Message) -> None:
        """Tell the worker something."""
        self._channel.sendall(pack(message))

    def serve(self, app: App) -> None:
        """Run tasks until the worker says that there are no more."""
        self._app = app
        judge = Judge(app.before_hooks, app.after_hooks)
        self.send({"ready": True})
        while (given := self._inbox.get()) is not None:
            ticket, attempt = given
            outcome = Snoozed(UNKNOWN_DELAY_S) if attempt is None else self._run(judge, attempt)
            if os.getpid() != self._pid:
                # The handler forked, and this is what it forked.
                os._exit(EXIT_ORPHANED)
            self._current = None
            for stream in (sys.stdout, sys.stderr):
                # A print that waits in a buffer would be lost if the next task killed the process.
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            self.send({"outcome": outcome_out(outcome), "ticket": ticket})
        app.close()

    # The main thread.

    def _run(self, judge: Judge, attempt: Attempt) -> Outcome:
        if attempt.handler.kind == "async":
            if self._async is None:
                self._async = AsyncRunner(judge, self._ended.put)
            self._async.submit([attempt])
            ((_, outcome),) = self._ended.get()
            return outcome
        # A handler may have put another one in its place.
        self._take_signals()
        self._interrupted = False
        # In a context of its own: what a handler sets in context variables ends with it.
        return copy_context().run(self._run_here, judge, attempt)

    def _run_here(self, judge: Judge, attempt: Attempt) -> Outcome:
        RUNNING.set(attempt.task)
        try:
            result = self._call(attempt, judge.arguments(attempt))
        except BaseException as error:  # noqa: BLE001 - SystemExit would end this process and lose the task
            return judge.raised(attempt, error)
        return judge.returned(attempt, result)

    def _call(self, attempt: Attempt, arguments: dict[str, Any]) -> object:
        try:
            self._interruptible = attempt
            if attempt.stop_reason is not None:
                # It came before there was something to interrupt.
                raise attempt.stop_reason
            return attempt.handler.function(**arguments)
        finally:
            self._interruptible = None

    def _take_signals(self) -> None:
        for number in _SIGNALS:
            # No SIG_IGN, which the programs that a handler starts would inherit.
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        attempt = self._interruptible
        stopped = attempt is not None and attempt.stop_reason is not None
        if number == signal.SIGTERM and stopped and not self._interrupted:
            self._interrupted = True
            raise asyncio.CancelledError("the task was told to stop")

    # The thread that listens to the worker.

    def _listen(self) -> None:
        try:
            unpacker = Unpacker()
            while data := self._channel.recv(READ_BYTES):
                for message in unpacker.feed(data):
                    self._take(message)
        except ConnectionError:
            pass
        except BaseException:  # noqa: BLE001 - out of memory, or what a handler did to the descriptor
            traceback.print_exc()
            os._exit(EXIT_BROKEN)
        os._exit(EXIT_ORPHANED)

    def _take(self, message: Message) -> None:
        if "task" in message:
            self._ticket = message["ticket"]
            self._current = self._attempt(task_in(message["task"]), message["queue"])
            self._inbox.put((self._ticket, self._current))
        elif "stop" in message:
            attempt = self._current
            if attempt is not None and message["ticket"] == self._ticket:
                self._stop(attempt, reason_in(message["stop"]))
        elif "leave" in message:
            self._inbox.put(None)

    def _attempt(self, task: Claimed, queue_name: str) -> Attempt | None:
        handler = self._app.handlers.get(task.name) if self._app is not None else None
        if handler is None:
            events.error("the app of this child process lacks a task", task=task.name, task_id=task.id)
            return None
        return Attempt(task, handler, queue_name, time.monotonic())

    def _stop(self, attempt: Attempt, reason: BaseException) -> None:
        # A later reason counts: the worker knows when it does.
        attempt.stop_reason = None
        attempt.stop(reason)
        if attempt.handler.kind == "async":
            if self._async is not None:
                self._async.interrupt(attempt)
        else:
            signal.pthread_kill(self._main_thread, signal.SIGTERM)


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its worker is gone, where it can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
