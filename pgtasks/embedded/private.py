"""A server for tests and benchmarks, which its user starts, stops, kills and configures."""

import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pgtasks.embedded import locks
from pgtasks.embedded.account import server_account
from pgtasks.embedded.binaries import find_binaries
from pgtasks.embedded.cluster import DATABASE, PORT, ROLE, Cluster, StopMode
from pgtasks.embedded.dsn import socket_dsn, tcp_dsn
from pgtasks.embedded.errors import EmbeddedError
from pgtasks.embedded.options import check_options
from pgtasks.embedded.process import DeathWatch

START_TIMEOUT_S = 60.0
MAKERS_END_S = 30.0


class PrivateServer:
    """A PostgreSQL server that belongs to this process and dies with it.

    Without a directory it makes one and removes it in `close`: in `parent`, or else among the
    temporary files, which may be in memory. A given directory and its data are kept. Run by root,
    the server runs as `postgres` or `nobody`, so a given directory, or `parent`, must be one that
    this user can reach (pytest's `tmp_path` is not).

    Settings come from `options`; the default is durable, `FAST_OPTIONS` is for data that may be
    lost. With `tcp` the server also listens on 127.0.0.1, on a port that the system chose, and
    asks there for a password that `tcp_dsn_for` contains.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        parent: Path | None = None,
        bindir: Path | None = None,
        options: Mapping[str, str] | None = None,
        tcp: bool = False,
        death_watch: DeathWatch | None = None,
    ) -> None:
        account = server_account()
        binaries = find_binaries(bindir)
        checked = check_options(options or {})
        self._temporary = directory is None
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="pgtasks-", dir=parent))
            if account is not None:
                directory.chmod(0o711)  # Root's server runs as a user who must get in.
        self._tcp = tcp
        self._password = secrets.token_urlsafe(18)
        self._cluster = Cluster(directory, binaries, account, options=checked, death_watch=death_watch)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            # Nobody calls `__exit__` then, and the directory would stay.
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()

    @property
    def directory(self) -> Path:
        """The folder with the data, the log and the socket."""
        return self._cluster.directory

    @property
    def data_dir(self) -> Path:
        """PostgreSQL's data directory."""
        return self._cluster.data_dir

    @property
    def socket_dir(self) -> Path:
        """The folder of the Unix socket, which is the `host` of a connection."""
        return self._cluster.socket_dir

    @property
    def log_path(self) -> Path:
        """The file with the server's messages since its last start."""
        return self._cluster.log_path

    @property
    def port(self) -> int:
        """The port: part of the socket's name, and the TCP port with `tcp`."""
        return self._cluster.port

    @property
    def version(self) -> str:
        """The server's version, for example `18.6`."""
        return self._cluster.version

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster while it runs, else None."""
        return self._cluster.pid

    @property
    def running(self) -> bool:
        """Whether the postmaster is alive."""
        return self._cluster.is_running()

    @property
    def dsn(self) -> str:
        """The address of the database `pgtasks` over the socket, as superuser."""
        return self.dsn_for(DATABASE)

    def dsn_for(self, database: str) -> str:
        """The address of another database of this server over the socket, as superuser."""
        return socket_dsn(self.socket_dir, self.port, user=ROLE, database=database)

    def tcp_dsn_for(self, database: str = DATABASE, *, host: str = "127.0.0.1", port: int = 0) -> str:
        """The address over TCP, with the password; `host` and `port` may name a proxy.

        Raises:
            EmbeddedError: the server was made without `tcp`.
        """
        if not self._tcp:
            raise EmbeddedError("This server does not listen on TCP. Make it with tcp=True.")
        return tcp_dsn(host, port or self.port, user=ROLE, password=self._password, database=database)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Start the server, made first if there is no data, and wait until it answers.

        Starting a server that runs changes nothing.

        Raises:
            EmbeddedError: it did not start, with the reason.
        """
        if self.running:
            return self
        if self._tcp:
            self._cluster.tcp = True
            if self._cluster.port == PORT:
                self._cluster.port = _free_port()
        self._cluster.start(timeout_s)
        if self._tcp:
            with self._cluster.session() as session:
                session.query(f"ALTER ROLE {ROLE} PASSWORD '{self._password}'")
        return self

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and wait until its last process is gone; `immediate` is a crash."""
        self._cluster.stop(mode)

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL and wait until its last process is gone."""
        self._cluster.kill()

    def restart(
        self,
        mode: StopMode = "fast",
        *,
        options: Mapping[str, str] | None = None,
        timeout_s: float = START_TIMEOUT_S,
    ) -> Self:
        """Stop and start the server, under the same address; `options` replace the old ones."""
        checked = self._cluster.options if options is None else check_options(options)
        self.stop(mode)
        self._cluster.options = checked
        return self.start(timeout_s)

    def close(self) -> None:
        """Stop the server at once, and remove its directory if this object made it."""
        self._cluster.stop("immediate")
        if not self._temporary:
            return
        if (self.data_dir / "postmaster.pid").exists():
            # A killed postmaster leaves shared memory behind, which only the next start removes.
            with contextlib.suppress(EmbeddedError):
                self.start()
                self._cluster.stop("immediate")
        self._wait_for_makers()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_for_makers(self) -> None:
        """Wait until nothing writes into the directory: an initdb whose start was interrupted goes on for a moment.

        It holds the lock, as every process of the server does, until the last of its own children has ended.
        """
        with contextlib.suppress(FileNotFoundError):
            lock = locks.open_lock(self.directory / "server.lock")
            try:
                locks.lock_until(lock, locks.EXCLUSIVE, time.monotonic() + MAKERS_END_S)
            finally:
                os.close(lock)


def _free_port() -> int:
    """A TCP port that was free a moment ago; the same one serves all starts of a server."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
