"""One child process of a worker: a program of its own, a socket to it, and its end.

It is started as a new program, so that it shares no connection, lock or thread with the worker,
in a session of its own, so that Ctrl-C in a terminal reaches the worker alone. It inherits one
end of a socket pair and no other descriptor but the standard ones. Everything here runs on the
engine's loop, but for a thread that waits for the process's end: that end is noticed also when
something the handler started still holds the socket open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from pgtasks import events
from pgtasks.engine.attempt import Attempt
from pgtasks.engine.frames import Message, Unpacker, pack
from pgtasks.payload import storable

READ_BYTES = 256 * 1024
# How long a child that was asked to leave, or that hung up, may still run.
LEAVE_S = 2.0
# How long one that was killed gets to end.
REAP_S = 1.0
# So much of what it said that makes no sense is shown.
SAID_MAX = 200


class Child:
    """A child process, running from its construction on, in ``folder`` (None: the worker's).

    Raises OSError when it cannot be started, and RuntimeError when there is no thread left to watch it.

    ``on_message`` gets each message, and raises something when it makes no sense; then the child is
    killed and no longer believed. ``on_end`` gets the return code once, as ``subprocess`` gives it,
    after the last message.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: str | None,
        on_message: Callable[[Child, Message], None],
        on_end: Callable[[Child, int], None],
    ) -> None:
        self._on_message, self._on_end = on_message, on_end
        self._loop = asyncio.get_running_loop()
        self._unpacker = Unpacker()
        self._unsent = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        # What the pool keeps about it.
        self.attempt: Attempt | None = None
        self.tickets = 0
        self.started_at = self.idle_since = time.monotonic()
        self.failure = ""
        # False once it said something that makes no sense.
        self.believed = True
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*command, "--fd", str(theirs.fileno())],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(0)
        try:
            threading.Thread(target=self._watch, name="pgtasks-child-watch", daemon=True).start()
        except RuntimeError:
            self.kill()
            self.wait(REAP_S)
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._read)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, message: Message) -> None:
        """Send a message; what does not go through at once follows when there is room."""
        if self._ended:
            return
        idle = not self._unsent
        self._unsent += pack(message)
        if idle:
            self._write()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            # It is gone or has hung up; its end is noticed elsewhere.
            self._unsent.clear()
        else:
            del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._socket, self._write)
        else:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
            return
        self._loop.remove_reader(self._socket)
        self.kill_in(LEAVE_S)

    def _take(self, data: bytes) -> None:
        if not self.believed:
            return
        try:
            for message in self._unpacker.feed(data):
                self._on_message(self, message)
        except Exception as error:  # noqa: BLE001 - a handler wrote to the descriptor, and may have written anything
            self.believed = False
            self.failure = f"it sent what makes no sense ({type(error).__name__}: {storable(str(error), SAID_MAX)})"
            events.error("child process not believed", pid=self.pid, why=self.failure)
            self.kill()

    def leave(self) -> None:
        """Ask it to end, and see to it that it does."""
        self.send({"leave": True})
        self.kill_in(LEAVE_S)

    def kill_in(self, delay_s: float, say: Callable[[], None] = lambda: None) -> None:
        """Kill it after a while, and say so, unless that is called off or has been decided before."""

        def kill() -> None:
            say()
            self.kill()

        if self._timer is None and not self._ended:
            self._timer = self._loop.call_later(delay_s, kill)

    def spare(self) -> None:
        """Call off what ``kill_in`` decided."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def kill(self) -> None:
        """Kill it at once, and whatever it started in its process group."""
        if not self._ended:
            # Not collected before `_end`, so the number cannot mean another process by now.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, limit_s: float) -> bool:
        """Block until it has ended, for a time at most; tells whether it has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)
        return self._process.returncode is not None

    def _watch(self) -> None:
        """Wait for its end, in a thread, and leave it to the loop to collect it."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._ended:
            return
        with contextlib.suppress(OSError):
            # What it said before it died counts.
            while data := self._socket.recv(READ_BYTES):
                self._take(data)
        returncode = self._process.wait()
        self.close()
        self._on_end(self, returncode)

    def close(self) -> None:
        """Forget the socket and the timer; nothing more is heard of it."""
        if self._ended:
            return
        self._ended = True
        self.spare()
        self._unsent.clear()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
