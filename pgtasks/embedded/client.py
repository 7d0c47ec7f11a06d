"""A program's side of the local server: join it, start it if it is not there, stop it.

`supervisor` tells how the two sides work together.
"""

import json
import os
import select
import subprocess
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pgtasks.embedded import errors, locks
from pgtasks.embedded.account import server_account
from pgtasks.embedded.binaries import find_binaries
from pgtasks.embedded.errors import EmbeddedError, ServerBusyError, StartError
from pgtasks.embedded.folder import make_folder, state_folder
from pgtasks.embedded.options import check_options
from pgtasks.embedded.process import interpreter
from pgtasks.embedded.state import RunningServer, State

LINGER_S = 5.0
START_TIMEOUT_S = 60.0
# The longest orderly stop of a server: a fast shutdown that turns into an immediate one.
STOP_TIMEOUT_S = 60.0

_ANSWER_SLACK_S = 10.0
_ANSWER_BYTES_MAX = 64 * 1024
_POLITE_STOP_S = 1.0
_SUPERVISOR_LOG_BYTES_MAX = 1024 * 1024

# The packages' own __init__ would load a driver that the supervisor has no use for, which takes
# longer than everything else that it does. So it gets bare packages with the same paths.
_BOOTSTRAP = """
import sys, types
for name, path in ("pgtasks", sys.argv[1]), ("pgtasks.embedded", sys.argv[1] + "/embedded"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from pgtasks.embedded.supervisor import main
main(sys.argv[2])
"""


class Lease:
    """The right to use the local server, which stays while somebody holds one.

    A child process that was forked while a lease was open holds it too. Use as a context
    manager, or call `close`; a killed process loses its lease by itself.
    """

    def __init__(self, request: "_Request", descriptor: int) -> None:
        self._request = request
        self._descriptor: int | None = descriptor
        self._server, self.started = request.find_or_start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()

    @property
    def dsn(self) -> str:
        """The server's address, a URI for psycopg, psql and SQLAlchemy."""
        return self._server.dsn

    @property
    def server(self) -> RunningServer:
        """The server's address in parts, its version and process ids."""
        return self._server

    @property
    def state_dir(self) -> Path:
        """The folder with the server's data and logs."""
        return self._request.state.folder

    def ensure(self) -> str:
        """Make sure that the server runs, started again if its supervisor was killed.

        Returns the address, which is the same as before.

        Raises:
            EmbeddedError: it did not start, with the reason.
        """
        self._server, _ = self._request.find_or_start()
        return self._server.dsn

    def keep_across_exec(self) -> None:
        """Let the program that this process turns into hold the lease for its life."""
        if self._descriptor is not None:
            os.set_inheritable(self._descriptor, True)  # noqa: FBT003 - takes it by position only

    def close(self) -> None:
        """Give the lease back; the server stays for its linger time, then stops."""
        if self._descriptor is not None:
            # Not LOCK_UN, which would take the lock away from forked children as well.
            os.close(self._descriptor)
            self._descriptor = None


class _Request:
    """What a client asked for, to be found or started as often as needed."""

    def __init__(
        self,
        state: State,
        bindir: Path | None,
        options: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        self.state = state
        self._bindir = bindir
        self._options = options
        self._timeout_s = timeout_s

    def join(self, descriptor: int) -> None:
        """Take clients.lock shared, after a server that is stopping now has stopped."""
        if not locks.lock_until(descriptor, locks.SHARED, time.monotonic() + self._timeout_s):
            raise StartError(
                f"The local server in {self.state.folder} is stopping and did not finish within "
                f"{self._timeout_s:.0f} s. Look into {self.state.supervisor_log}."
            )

    def find_or_start(self) -> tuple[RunningServer, bool]:
        """The running server, and whether it was started now. The caller holds clients.lock."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            lock = locks.open_lock(self.state.supervisor_lock)
            try:
                if locks.try_lock(lock, locks.EXCLUSIVE):
                    return self._start(lock), True
            finally:
                os.close(lock)
            server = self.state.read_server()
            if server and not self.state.stop_request.exists() and server.answers():
                return server, False
            if time.monotonic() >= deadline:
                raise StartError(
                    f"The local server in {self.state.folder} did not answer within "
                    f"{self._timeout_s:.0f} s. Look into {self.state.supervisor_log}."
                )
            time.sleep(locks.POLL_S)

    def _start(self, lock: int) -> RunningServer:
        reader, writer = os.pipe()
        try:
            try:
                self._spawn(lock, writer)
            finally:
                os.close(writer)
            answer = _read_line(reader, time.monotonic() + self._timeout_s + _ANSWER_SLACK_S)
        finally:
            os.close(reader)
        if "error" in answer:
            kind = getattr(errors, str(answer.get("kind")), StartError)
            raise kind(answer["error"])
        server = self.state.read_server()
        if not answer or server is None:
            raise StartError(
                f"The local server in {self.state.folder} did not start. Look into {self.state.supervisor_log}."
            )
        return server

    def _spawn(self, lock: int, answer: int) -> None:
        job = {
            "folder": str(self.state.folder),
            "bindir": str(find_binaries(self._bindir).bindir),
            "options": dict(self._options),
            "start_timeout_s": self._timeout_s,
            "supervisor_lock": lock,
            "answer": answer,
        }
        package = str(Path(__file__).absolute().parent.parent)
        command = [interpreter(), "-I", "-S", "-c", _BOOTSTRAP, package, json.dumps(job)]
        log = _open_supervisor_log(self.state.supervisor_log)
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                pass_fds=(lock, answer),
                start_new_session=True,
                check=False,
            )
        finally:
            os.close(log)


def open_server(
    state_dir: Path | None = None,
    *,
    bindir: Path | None = None,
    options: Mapping[str, str] | None = None,
    linger_s: float = LINGER_S,
    timeout_s: float = START_TIMEOUT_S,
) -> Lease:
    """Join the local server of a state folder, and start it if it does not run.

    Args:
        state_dir: where its files are; see `state_folder` for the default.
        bindir: the directory with `postgres` and `initdb`; the installed wheel's by default.
        options: PostgreSQL settings, which count only if this call starts the server.
        linger_s: how long the server stays at least after its last client, in seconds.
        timeout_s: how long to wait for it, in seconds.

    Raises:
        EmbeddedError: there is no server to be had; the message says why and what to do.
    """
    checked = check_options(options or {})
    state = State(state_folder(state_dir))
    make_folder(state.folder, server_account())
    request = _Request(state, bindir, checked, timeout_s)
    descriptor = locks.open_lock(state.clients_lock)
    try:
        request.join(descriptor)
        lease = Lease(request, descriptor)
        # In time: the server cannot stop while this client holds clients.lock.
        state.ask_linger_s(linger_s)
        return lease
    except BaseException:
        os.close(descriptor)
        raise


def is_running(state_dir: Path | None = None) -> bool:
    """Whether a local server runs in a state folder, or is starting or stopping there."""
    return State(state_folder(state_dir)).supervised()


def stop_server(state_dir: Path | None = None, *, force: bool = False, timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Stop the local server now; False when none runs.

    Without `force` a server that somebody uses is left alone.

    Raises:
        ServerBusyError: somebody uses it.
        EmbeddedError: it did not stop in time.
    """
    state = State(state_folder(state_dir))
    if not state.supervised():
        return False
    clients = locks.open_lock(state.clients_lock)
    try:
        if not force:
            _require_unused(state, clients)
        return _request_stop(state, time.monotonic() + timeout_s)
    finally:
        os.close(clients)


def _require_unused(state: State, clients: int) -> None:
    """Take clients.lock alone, so that nobody joins until the server has stopped."""
    # Tried for a moment, because the supervisor takes it for an instant in every round.
    if not locks.lock_until(clients, locks.EXCLUSIVE, time.monotonic() + _POLITE_STOP_S):
        raise ServerBusyError("The local server is in use by another program. Stop that first, or use --force.")
    server = state.read_server()
    sessions = 0 if server is None else server.count_sessions()
    # The session of a client that has just left is still ending.
    patient_until = time.monotonic() + _POLITE_STOP_S
    while server is not None and sessions and time.monotonic() < patient_until:
        time.sleep(locks.POLL_S)
        sessions = server.count_sessions()
    if sessions:
        raise ServerBusyError(
            f"The local server is in use: it has {sessions} open connection(s). Close them first, or use --force."
        )


def _request_stop(state: State, deadline: float) -> bool:
    os.close(os.open(state.stop_request, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    # The supervisor removes the request when it has stopped; if it dies, its lock is free.
    while state.stop_request.exists() and state.supervised():
        if time.monotonic() >= deadline:
            raise EmbeddedError(f"The local server did not stop in time. Look into {state.supervisor_log}.")
        time.sleep(locks.POLL_S)
    state.stop_request.unlink(missing_ok=True)
    # The old supervisor exits right after that, unless somebody has started a new one already.
    while state.read_server() is None and state.supervised() and time.monotonic() < deadline:
        time.sleep(locks.POLL_S)
    return True


def _read_line(pipe: int, deadline: float) -> dict[str, str]:
    """One line of JSON from a pipe; empty when the writer died or time ran out."""
    data = b""
    while not data.endswith(b"\n") and len(data) < _ANSWER_BYTES_MAX:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(pipe, 4096) if ready else b""
        if not chunk:
            return {}
        data += chunk
    answer: dict[str, str] = json.loads(data)
    return answer


def _open_supervisor_log(path: Path) -> int:
    if path.exists() and path.stat().st_size > _SUPERVISOR_LOG_BYTES_MAX:
        path.replace(path.with_suffix(".log.1"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)
