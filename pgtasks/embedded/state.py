"""What the clients of one local server and its supervisor share: the files of the state folder.

Besides those of `cluster` they are:

    clients.lock      every client holds it shared; whoever holds it alone knows there is none
    supervisor.lock   the supervisor holds it for life, after its starter took it
    linger            how long the server stays after its last client, in seconds
    server.json       where the running server listens; written when it answers, removed first
                      of all when it stops
    stop.request      somebody wants the server to stop now; removed when it has
    supervisor.log    what the supervisor did and why
"""

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pgtasks.embedded import locks, wire
from pgtasks.embedded.cluster import DATABASE, ROLE
from pgtasks.embedded.dsn import socket_dsn
from pgtasks.embedded.folder import socket_path

_PROBE_TIMEOUT_S = 5.0
_LINGER_LOCK_S = 5.0
_COUNT_SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The address of a server that a supervisor runs."""

    socket_dir: str
    port: int
    version: str
    server_pid: int
    supervisor_pid: int

    @property
    def dsn(self) -> str:
        """The address of its database `pgtasks`."""
        return socket_dsn(Path(self.socket_dir), self.port, user=ROLE, database=DATABASE)

    def answers(self) -> bool:
        """Whether it accepts a connection to its database at this moment."""
        try:
            self._session().close()
        except wire.WireError:
            return False
        return True

    def count_sessions(self) -> int:
        """How many connections it has besides the one that asks; 0 when it does not answer."""
        try:
            with self._session() as session:
                return int(session.query(_COUNT_SESSIONS)[0][0] or 0)
        except wire.WireError:
            return 0

    def _session(self) -> wire.Session:
        path = socket_path(Path(self.socket_dir), self.port)
        return wire.Session(path, user=ROLE, database=DATABASE, timeout_s=_PROBE_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class State:
    """The files in one state folder."""

    folder: Path

    @property
    def clients_lock(self) -> Path:
        """Held shared by every client."""
        return self.folder / "clients.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor for life."""
        return self.folder / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor did and why."""
        return self.folder / "supervisor.log"

    @property
    def stop_request(self) -> Path:
        """Exists while somebody waits for the server to stop."""
        return self.folder / "stop.request"

    def supervised(self) -> bool:
        """Whether a supervisor is alive, or somebody is about to start one."""
        return self.supervisor_lock.exists() and not locks.is_free(self.supervisor_lock)

    def read_server(self) -> RunningServer | None:
        """The server that was last announced; it may be gone if its supervisor was killed."""
        try:
            return RunningServer(**json.loads((self.folder / "server.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def announce(self, server: RunningServer) -> None:
        """Let clients find a server that answers."""
        unfinished = self.folder / "server.json.new"
        unfinished.write_text(json.dumps(asdict(server)))
        unfinished.replace(self.folder / "server.json")

    def withdraw(self) -> None:
        """Let clients no longer find the server."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "server.json").unlink()

    def read_linger_s(self) -> float:
        """How long to stay after the last client, in seconds."""
        try:
            return float((self.folder / "linger").read_text())
        except (OSError, ValueError):
            return 0.0

    def ask_linger_s(self, linger_s: float) -> None:
        """Make the server stay at least this long after its last client."""
        descriptor = locks.open_lock(self.folder / "linger")
        try:
            # Without the lock of this one file, a client that asks for less could overwrite more.
            locks.lock_until(descriptor, locks.EXCLUSIVE, time.monotonic() + _LINGER_LOCK_S)
            if linger_s > self.read_linger_s():
                os.pwrite(descriptor, f"{linger_s:020.3f}".encode(), 0)
        finally:
            os.close(descriptor)

    def forget_linger(self) -> None:
        """Start again from zero with the next server."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "linger").unlink()
