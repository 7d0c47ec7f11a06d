"""The PostgreSQL of a chaos run: a primary, a synchronous standby if wanted, and what can happen to them.

Everything that was acknowledged must be kept, so the servers are durable (fsync, full page writes, synchronous
commit), and with a standby each commit waits until the standby has it on disk (`synchronous_standby_names`). After
`failover` the new primary runs alone and waits for nobody, because there is nobody; `rejoin` makes the old one its
standby, by a fresh base backup, and returns only when commits wait for it again. So whatever was acknowledged is on
the server that the next failover promotes. `pg_rewind` would copy less, but refuses a server that crashed until it
was started and stopped once more, and fetches the source's settings; a base backup has no such cases.

The servers run the programs that the other tests use. They die with this process, whatever ends it.
"""

import atexit
import os
import shutil
import signal
import tempfile
import threading
import time
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psycopg

from pgtasks.embedded.cluster import StopMode
from tests.chaos.disk import SmallDisk
from tests.chaos.node import START_S_MAX, Node, new_password
from tests.database import Connection, rows, value, wait_until

DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
# A standby that lost its primary for a moment is back at once, and needs no slot to find the WAL it missed.
_STREAMING = {"wal_keep_size": "512MB", "wal_retrieve_retry_interval": "200ms"}
_CLIENTS = "backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> 'chaos'"


class Cluster:
    """A context manager, which removes everything in the end. All methods may be called from any thread.

    Without a folder it makes one; a given one must be reachable by the user that root's servers run as, which
    pytest's `tmp_path` is not. With `disk_mib` each server's data is on a file system of this size, `disk`,
    which only root can make.
    """

    def __init__(
        self,
        folder: Path | None = None,
        standby: bool = False,  # noqa: FBT001, FBT002 - reads well at the place of the call, with its name
        *,
        disk_mib: int | None = None,
        max_connections: int = 200,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.has_standby = standby
        self.disk_mib = disk_mib
        self._temporary = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="pgtasks-chaos-"))
        self._folder.mkdir(exist_ok=True)
        self._folder.chmod(0o711)
        small = {} if disk_mib is None else {"wal_keep_size": f"{disk_mib // 8}MB", "max_wal_size": "64MB"}
        chosen = {**DURABLE, **_STREAMING, **small, "max_connections": str(max_connections), **(options or {})}
        password = new_password()
        self._nodes = [Node(self._folder / name, chosen, password) for name in ("a", "b")[: 1 + standby]]
        self._primary = self._nodes[0]
        self._disks = {node: SmallDisk(node.folder, disk_mib) for node in self._nodes if disk_mib is not None}
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        atexit.register(self.close)
        try:
            for node in self._nodes:
                node.make_folder()
            for disk in self._disks.values():
                disk.mount()
            self._primary.start()
            self._primary.make_database()
            if self.has_standby:
                self.rejoin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"--- the primary's log ends with:\n{self.log()[-2000:]}")
        self.close()

    def close(self) -> None:
        """Stop all servers and remove their data; may be called again."""
        with self._lock:
            for node in self._nodes:
                node.stop("immediate")
            for disk in self._disks.values():
                disk.unmount()
            if self._temporary:
                shutil.rmtree(self._folder, ignore_errors=True)
            atexit.unregister(self.close)

    @property
    def disk(self) -> SmallDisk | None:
        """The small disk that the present primary's data is on, if it is on one."""
        return self._disks.get(self._primary)

    @property
    def dsn(self) -> str:
        """The address of the present primary over TCP, without anything in between, as superuser."""
        return self._primary.dsn

    @property
    def node_dsns(self) -> list[str]:
        """The addresses of all servers, always in the same order; with one server that is `dsn`."""
        return [node.dsn for node in self._nodes]

    @property
    def workers_dsn(self) -> str:
        """The address for clients that shall follow a failover: all servers, of which one takes writes."""
        return multi_host(self.node_dsns)

    @property
    def port(self) -> int:
        """The TCP port of the present primary."""
        return self._primary.port

    @property
    def running(self) -> bool:
        """Whether the primary's postmaster is alive."""
        return self._primary.running

    def log(self) -> str:
        """Give what the primary has written to its log since its last start."""
        path = self._primary.log_path
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @contextmanager
    def admin(self) -> Iterator[Connection]:
        """Give a session on the primary over its socket, which the faults spare."""
        with self._primary.admin() as connection:
            yield connection

    def start(self) -> None:
        """Start the primary, if it does not run; returns when it answers."""
        with self._lock:
            self._primary.start()

    def stop(self, mode: StopMode = "immediate") -> None:
        """Stop the primary; `immediate` is a crash."""
        with self._lock:
            self._primary.stop(mode)

    def restart(self, mode: StopMode = "immediate") -> None:
        """Stop the primary and start it again on the same data and port; returns when it answers."""
        with self._lock:
            self._primary.stop(mode)
            self._primary.start()

    def backends(self) -> list[int]:
        """Give the process ids of all sessions of clients, without those of the harness."""
        with self.admin() as admin:
            return [pid for (pid,) in rows(admin, f"SELECT pid FROM pg_stat_activity WHERE {_CLIENTS} ORDER BY pid")]

    def kill_backend(self, pid: int) -> None:
        """Kill one of `backends` with SIGKILL: the whole server disconnects everybody and recovers."""
        os.kill(pid, signal.SIGKILL)

    def terminate_all(self) -> int:
        """End the sessions of all clients and give how many there were."""
        with self.admin() as admin:
            found = rows(admin, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_CLIENTS}")
        return len(found)

    def wait_ready(self, timeout_s: float = START_S_MAX) -> None:
        """Wait until the primary lets a client in over TCP and takes writes."""
        wait_until(self._takes_writes, timeout_s, 0.05, hint=lambda: f"the server is not ready:\n{self.log()[-2000:]}")

    def revive(self, timeout_s: float = START_S_MAX) -> None:
        """Start the primary whenever it is down, until it takes writes; a crashed one may give up recovering once."""

        def is_up() -> bool:
            self.start()
            return self._takes_writes()

        wait_until(is_up, timeout_s, 0.05, hint=lambda: f"the server does not recover:\n{self.log()[-2000:]}")

    def promote(self) -> None:
        """Make the standby the primary, alone; the old primary must not run any more."""
        with self._lock:
            assert not self._primary.running, "stop the primary first: two would take writes"
            self._spare.promote()
            self._primary = self._spare

    def failover(self) -> None:
        """Let the primary crash for good and promote the standby."""
        with self._lock:
            self._primary.stop("immediate")
            self.promote()

    def rejoin(self) -> None:
        """Make the server that is down the standby of the primary; returns when commits wait for it."""
        with self._lock:
            spare = self._spare
            if spare.running:
                return
            spare.copy_of(self._primary)
            self._wait_in_step(spare.folder.name)
            self._primary.configure("synchronous_standby_names", f'"{spare.folder.name}"')
            self._wait_in_step(spare.folder.name)

    @property
    def _spare(self) -> Node:
        (other,) = (node for node in self._nodes if node is not self._primary)
        return other

    def _takes_writes(self) -> bool:
        try:
            with psycopg.connect(self.dsn, connect_timeout=5, autocommit=True) as connection:
                return bool(value(connection, "SELECT NOT pg_is_in_recovery()"))
        except psycopg.OperationalError:
            return False

    def _wait_in_step(self, name: str) -> None:
        """Wait until the standby has on disk all that the primary has written until now."""
        until = time.monotonic() + START_S_MAX
        with self.admin() as admin:
            # Commits a record, because a standby never confirms the empty beginning of a new segment.
            now = value(admin, "SELECT pg_logical_emit_message(true, 'chaos', 'in step')::text")
            query = "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s AND flush_lsn >= %s::pg_lsn"
            wait_until(lambda: value(admin, query, name, now), until - time.monotonic(), hint="no standby in step")


def multi_host(dsns: list[str]) -> str:
    """Join addresses that differ in host and port only to one that means whichever takes writes."""
    if len(dsns) == 1:
        return dsns[0]
    parts = [psycopg.conninfo.conninfo_to_dict(dsn) for dsn in dsns]
    joined = {key: ",".join(str(part[key]) for part in parts) for key in ("host", "port")}
    return psycopg.conninfo.make_conninfo(**{**parts[0], **joined, "target_session_attrs": "read-write"})  # type: ignore[arg-type]  # all of them are text
