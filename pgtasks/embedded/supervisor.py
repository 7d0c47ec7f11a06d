"""The process that runs the local server for as long as somebody uses it.

Two locks (see `locks`: the kernel frees them when their holder dies) decide everything; no
process id is ever trusted.

    clients.lock      shared by all clients for life. Taken alone by the supervisor before it
                      stops the server, and by a polite stop request
    supervisor.lock   held by the supervisor for life. Its starter takes it, and the supervisor
                      inherits the descriptor, so there is no moment at which it is free
    server.lock       held by the processes of PostgreSQL (see `cluster`)

A client                                        The supervisor
------------------------------------------      ------------------------------------------------
JOIN   take clients.lock shared                 STARTING  (holds supervisor.lock)
FIND   is supervisor.lock free?                    wait for server.lock: an old server may still
         yes: START: hold it, spawn the                be dying; initdb if needed; start
              supervisor with it, read              postgres; write server.json; answer the
              its answer from a pipe                starter's pipe                  -> SERVING
         no:  does the server of                   failed: answer the pipe             -> GONE
              server.json answer?               SERVING   every 0.25 s:
                yes: USE it                        stop requested, or signal        -> STOPPING
                no:  look again soon (FIND)        postgres died                  -> RESTARTING
USE    until close or death                        clients.lock can be taken alone, no session
                                                       is open, for `linger` s, and kept held
                                                                                   -> STOPPING
                                                RESTARTING  as STARTING, at most 5 times in a row
                                                STOPPING  remove server.json, fast shutdown
                                                       (later immediate, later SIGKILL) -> GONE
                                                GONE      exit: the kernel frees both locks

Why the races end well:
 * Client arrives while the supervisor stops: it waits in JOIN, because the supervisor holds
   clients.lock alone, and then finds supervisor.lock free. After a forced stop it waits in FIND.
   The supervisor looks at clients.lock and decides while it holds it, so no client can slip in
   between the look and the stop.
   A client that finds a stop request looks again soon, as if the server did not answer.
 * Eight starters at once: one takes supervisor.lock, seven wait in FIND until the server answers.
 * Starter killed: the supervisor has the lock already, or nobody has and the next one starts.
 * Client killed: its shared lock is gone, so the server stops like after a close.
 * Supervisor killed: postgres has asked for SIGQUIT at its parent's death. supervisor.lock is
   free, so the next client starts a supervisor; that waits for server.lock, which is free when
   the last process of the old server is gone, and overwrites the stale server.json. A client
   looks at supervisor.lock before it believes server.json, so a stale file misleads nobody.
 * postgres killed: RESTARTING, under the same address, while its clients reconnect.
 * Killed during initdb: initdb dies too, and `data.new` is made again.
 * State folder removed: the supervisor sees that its lock file is another one or none, and kills
   the server. The next client makes a new folder with new locks, so it waits for nobody.
 * Machine off: all locks are gone, and files are judged as after a killed supervisor.

This module runs in an interpreter of its own (see `spawn` in `client`) that imports the standard
library only, because a cold start is paid by a person who waits.
"""

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pgtasks.embedded import locks
from pgtasks.embedded.account import server_account
from pgtasks.embedded.binaries import Binaries
from pgtasks.embedded.cluster import Cluster
from pgtasks.embedded.errors import EmbeddedError
from pgtasks.embedded.state import RunningServer, State

TICK_S = 0.25
LOG_BYTES_MAX = 10 * 1024 * 1024
RESTARTS_MAX = 5
# A server that has run this long before it died has earned its restarts back.
RESTARTS_FORGIVEN_S = 60.0

_FOLDER_GONE = "the state folder was removed"


class Supervisor:
    """One server, from its start until nobody uses it."""

    def __init__(self, state: State, cluster: Cluster, *, start_timeout_s: float, say: Callable[[str], None]) -> None:
        self._state = state
        self._cluster = cluster
        self._start_timeout_s = start_timeout_s
        self._say = say
        self._clients = locks.open_lock(state.clients_lock)
        self._signalled = False
        self._server: RunningServer | None = None
        self._idle_since: float | None = None
        self._wake = selectors.DefaultSelector()

    def start(self) -> RunningServer:
        """Start the server and announce it."""
        server_pid = self._cluster.start(self._start_timeout_s)
        self._server = RunningServer(
            socket_dir=str(self._cluster.socket_dir),
            port=self._cluster.port,
            version=self._cluster.version,
            server_pid=server_pid,
            supervisor_pid=os.getpid(),
        )
        self._state.announce(self._server)
        self._say(f"serving {self._server.version}, postgres is process {self._server.server_pid}")
        return self._server

    def serve(self) -> None:
        """Keep the server running until a stop is due, then stop it."""
        reason = self._serve_until_a_reason_to_stop()
        self._say(f"stopping: {reason}")
        if reason == _FOLDER_GONE:
            # There is nothing to save. A gentler stop would remove the socket of a new server
            # that somebody has started since under the same path.
            self._cluster.abandon()
            return
        self._state.withdraw()
        self._cluster.stop("fast")
        self._state.forget_linger()
        self._state.stop_request.unlink(missing_ok=True)
        self._say("stopped")

    def listen_to_signals(self) -> None:
        """Let SIGTERM and SIGINT stop the server, and let every signal end a wait at once."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._wake.register(reader, selectors.EVENT_READ)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)

    def _on_stop_signal(self, *_: object) -> None:
        self._signalled = True

    def _serve_until_a_reason_to_stop(self) -> str:
        restarts = 0
        started = time.monotonic()
        while True:
            self._wait()
            if self._folder_is_gone():
                return _FOLDER_GONE
            if self._signalled:
                return "a signal asked for it"
            if self._state.stop_request.exists():
                return "a stop was requested"
            if not self._cluster.is_running():
                restarts = 1 if time.monotonic() - started > RESTARTS_FORGIVEN_S else restarts + 1
                if restarts > RESTARTS_MAX:
                    return "postgres died too often"
                if not self._restart():
                    return "postgres does not start any more"
                started = time.monotonic()
            if self._nobody_for_long_enough():
                return "nobody uses it"
            self._limit_log()

    def _wait(self) -> None:
        for key, _ in self._wake.select(TICK_S):
            os.read(key.fd, 4096)

    def _folder_is_gone(self) -> bool:
        """Whether somebody removed the folder, and with it the lock files that we hold."""
        try:
            return not os.path.samestat(os.fstat(self._clients), self._state.clients_lock.stat())
        except FileNotFoundError:
            return True

    def _restart(self) -> bool:
        self._say("postgres died, starting it again")
        self._state.withdraw()
        self._cluster.stop("immediate")
        try:
            self.start()
        except EmbeddedError as error:
            self._say(str(error))
            return False
        return True

    def _nobody_for_long_enough(self) -> bool:
        """Whether the server may stop; if so, clients.lock stays taken, and arrivals wait."""
        if not locks.try_lock(self._clients, locks.EXCLUSIVE):
            self._idle_since = None
            return False
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= self._state.read_linger_s():
            if self._server is None or self._server.count_sessions() == 0:
                return True
            self._idle_since = None  # A psql of somebody who only has the address.
        locks.unlock(self._clients)
        return False

    def _limit_log(self) -> None:
        """Move a log that has grown too long aside, under the server's open descriptor."""
        log = self._cluster.log_path
        try:
            if log.stat().st_size < LOG_BYTES_MAX:
                return
            log.with_suffix(".log.1").write_bytes(log.read_bytes())
            os.truncate(log, 0)
        except OSError as error:
            self._say(f"cannot limit {log}: {error}")


def main(argument: str) -> None:
    """Run a supervisor as the JSON object says.

    Keys: `folder`, `bindir`, `options`, `start_timeout_s`, `supervisor_lock` and `answer` (two
    inherited descriptors: the taken lock, and the pipe that gets one line of JSON, with `server`
    or with `error` and `kind` in it).
    """
    if os.fork() > 0:
        os._exit(0)  # The starter waits for this one, so that nobody has to wait for the other.
    job: dict[str, Any] = json.loads(argument)
    # The descriptor job["supervisor_lock"] stays open until this process ends. PostgreSQL never
    # gets it, because `launch` closes what it does not pass on.
    os.umask(0o077)
    state = State(Path(job["folder"]))
    state.stop_request.unlink(missing_ok=True)
    try:
        binaries = Binaries(Path(job["bindir"]))
        cluster = Cluster(state.folder, binaries, server_account(), options=job["options"])
        supervisor = Supervisor(state, cluster, start_timeout_s=job["start_timeout_s"], say=_write_log)
        supervisor.listen_to_signals()
        server = supervisor.start()
    except EmbeddedError as error:
        _write_log(f"not started: {error}")
        _answer(job["answer"], {"error": str(error), "kind": type(error).__name__})
        sys.exit(1)
    _answer(job["answer"], {"server": server.dsn})
    supervisor.serve()


def _write_log(message: str) -> None:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    sys.stderr.write(f"{moment} UTC [{os.getpid()}] {message}\n")
    sys.stderr.flush()


def _answer(pipe: int, answer: dict[str, str]) -> None:
    try:
        os.write(pipe, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        _write_log("the starter is gone")
    finally:
        os.close(pipe)
