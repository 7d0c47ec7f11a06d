"""One of a supervisor's places for a worker: the process that has it now, and the line to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import uuid

from pgtasks import events
from pgtasks.engine.restarts import End, Restart, Retire
from pgtasks.engine.supervised import VARIABLE, Greeting

_GREETING_BYTES_MAX = 64 * 1024
_READ_BYTES = 4096


class Seat:
    """A place, which is empty until ``start`` and again after ``ended``."""

    def __init__(self, command: list[str], environ: dict[str, str], place: int) -> None:
        self._command, self._environ, self._place = command, environ, place
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._heard = b""
        self._started_at = 0.0
        self._short_lives = 0
        self.worker_id = uuid.UUID(int=0)
        self.greeting: Greeting | None = None
        # The line, until all was heard that the process has to say.
        self.unheard: socket.socket | None = None
        # When to start the next process (monotonic), None when none is to be started.
        self.start_at: float | None = None
        # How the last process ended, None while there is one.
        self.last_code: int | None = None

    @property
    def pid(self) -> int | None:
        """The id of its process, None while it is empty."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start a process, in a session of its own: what a terminal sends to all reaches it through us.

        Raises OSError when the system has no room for one.
        """
        ours, theirs = socket.socketpair()
        worker_id = uuid.uuid4()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            process = subprocess.Popen(
                self._command,
                env={**self._environ, VARIABLE: f"{theirs.fileno()}:{worker_id}:{self._place}"},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            undo.pop_all()
        ours.settimeout(0.0)
        self._process, self._line, self.unheard = process, ours, ours
        self._heard, self.greeting, self.worker_id = b"", None, worker_id
        self._started_at, self.start_at, self.last_code = time.monotonic(), None, None
        events.info("worker process started", pid=process.pid, worker=worker_id)

    def hear(self) -> bool:
        """Read what the process says; tells whether it has just greeted."""
        while self.unheard is not None:
            try:
                said = self.unheard.recv(_READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                said = b""
            self._heard += said
            if b"\n" in self._heard:
                self.greeting = Greeting.read(self._heard)
            if self.greeting or not said or len(self._heard) > _GREETING_BYTES_MAX:
                self.unheard = None
                return self.greeting is not None
        return False

    def tell(self, number: int) -> None:
        """Pass a signal on.

        Over the line, where it is not mistaken for one that reached the process by itself. One
        that has not yet begun as a worker does not read there: SIGTERM ends it at once.
        """
        if self._process is None or self._line is None:
            return
        with contextlib.suppress(OSError):
            self._line.send(bytes([number]))
        if self.greeting is None:
            os.kill(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill its process, if there is one."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)

    def ended(self, code: int) -> End:
        """Note that its process is dead, and was reaped; the place is empty now."""
        if self._process is not None:
            self._process.returncode = code
        if self._line is not None:
            self._line.close()
        self._process = self._line = self.unheard = None
        self.last_code = code
        return self._end(code, time.monotonic() - self._started_at)

    def not_started(self) -> End:
        """Give the end of a process that could not even be started."""
        return self._end(-signal.SIGKILL, 0.0)

    def _end(self, code: int, lived_s: float) -> End:
        return End(code, lived_s, begun=self.greeting is not None, short_lives=self._short_lives)

    def follow(self, decision: Restart | Retire) -> None:
        """Plan what was decided about the place."""
        if isinstance(decision, Restart):
            self._short_lives = decision.short_lives
            self.start_at = time.monotonic() + decision.delay_s
        else:
            self.start_at = None
