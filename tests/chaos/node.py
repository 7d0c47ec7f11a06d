"""One PostgreSQL server of a chaos run: durable, on TCP, and dead as soon as this process is."""

import os
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql

from pgtasks.embedded import ROLE, find_binaries
from pgtasks.embedded import cluster as embedded
from pgtasks.embedded.account import server_account
from pgtasks.embedded.folder import make_private_folder
from pgtasks.embedded.process import run_tool
from tests.access import CHAOS, ROLES, make_roles
from tests.database import Connection, value

START_S_MAX = 120.0
_TOOL_S_MAX = 120.0
_CONNECT_S_MAX = 10
# The harness' own sessions, which no default of a role and no standby that is away may hold up.
_CALM = (
    "-c default_transaction_read_only=off -c default_transaction_isolation=read\\ committed"
    " -c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0"
    " -c idle_session_timeout=0 -c synchronous_commit=local"
)


class Node:
    """A data directory in a folder of its own, with the server that runs on it; not thread-safe.

    The port is chosen once and stays the same, whatever the server's part is.
    """

    def __init__(self, folder: Path, options: Mapping[str, str], password: str) -> None:
        bindir = os.environ.get("PGTASKS_TEST_PG_BINDIR")
        self._account = server_account()
        self._binaries = find_binaries(Path(bindir) if bindir else None)
        self._server = embedded.Cluster(folder, self._binaries, self._account, options=options)
        self._server.tcp = True
        self._server.port = free_port()
        self._password = password

    @property
    def folder(self) -> Path:
        """The folder that holds its data, socket and log."""
        return self._server.directory

    @property
    def log_path(self) -> Path:
        """The file with its messages since the last start."""
        return self._server.log_path

    @property
    def port(self) -> int:
        """Its TCP port on 127.0.0.1."""
        return self._server.port

    @property
    def running(self) -> bool:
        """Whether its postmaster is alive."""
        return self._server.is_running()

    @property
    def dsn(self) -> str:
        """Its address over TCP, as superuser."""
        return psycopg.conninfo.make_conninfo(
            host="127.0.0.1", port=self.port, user=ROLE, password=self._password, dbname=CHAOS
        )

    def start(self) -> None:
        """Start it, if it does not run, on new data if it has none; returns when it answers."""
        if not self.running:
            self._server.start(START_S_MAX)

    def stop(self, mode: embedded.StopMode) -> None:
        """Stop it, orderly with `fast`, as a crash with `immediate`, and wait for its last process."""
        self._server.stop(mode)

    def kill(self) -> None:
        """Kill the postmaster alone with SIGKILL, and wait until its orphans have noticed."""
        self._server.kill()

    @contextmanager
    def admin(self, database: str = CHAOS) -> Iterator[Connection]:
        """Give a session over the socket, in autocommit mode, which no fault's settings reach."""
        with psycopg.connect(
            host=str(self._server.socket_dir),
            port=self.port,
            user=ROLE,
            dbname=database,
            options=_CALM,
            application_name="chaos",
            connect_timeout=_CONNECT_S_MAX,
            autocommit=True,
        ) as connection:
            yield connection

    def make_database(self) -> None:
        """Make the roles, let them in over TCP, and give one of them a database; once in the life of the data."""
        with self.admin("postgres") as admin:
            admin.execute(sql.SQL("ALTER ROLE postgres PASSWORD {}").format(self._password))
            make_roles(admin, self._password)
            owner = sql.Identifier(ROLES["owner"])
            admin.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(CHAOS), owner))

    def configure(self, setting: LiteralString, text: str) -> None:
        """Change one setting of the running server, for good."""
        with self.admin() as admin:
            admin.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(setting), text))
            admin.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Make a standby the primary; returns when it takes writes."""
        with self.admin() as admin:
            assert value(admin, "SELECT pg_promote(true, 60)"), f"the standby was not promoted, see {self.log_path}"

    def copy_of(self, primary: "Node") -> None:
        """Replace its data by a copy of the primary's and start it as a standby that streams from there."""
        source = f"host={primary._server.socket_dir} port={primary.port} user={ROLE}"  # noqa: SLF001 - of another node, which is the same class
        data, new = self._server.data_dir, self.folder / "data.new"
        for stale in (data, new):
            shutil.rmtree(stale, ignore_errors=True)
        make_private_folder(new, None)
        argv = [str(self._binaries.program("pg_basebackup")), "-d", source, "-D", str(new)]
        argv += ["--checkpoint=fast", "--wal-method=stream", "--no-sync"]
        status, printed = run_tool(argv, account=None, cwd=primary.folder, lock=None, timeout_s=_TOOL_S_MAX)
        assert status == 0, f"pg_basebackup failed: {printed}"
        (new / "standby.signal").touch()
        # What the primary has there is about its own standby.
        (new / "postgresql.auto.conf").write_text(
            f"primary_conninfo = '{source} application_name={self.folder.name}'\n"
        )
        if self._account is not None:
            _give(new, self._account.uid, self._account.gid)
        new.rename(data)
        self.start()

    def make_folder(self) -> None:
        """Make its folder, in which only the server's account gets further."""
        self.folder.mkdir(mode=0o700 if self._account is None else 0o711, exist_ok=True)


def new_password() -> str:
    """Give a password for one run."""
    return secrets.token_urlsafe(18)


def _give(folder: Path, uid: int, gid: int) -> None:
    for root, _, files in os.walk(folder):
        os.chown(root, uid, gid)
        for name in files:
            os.chown(Path(root, name), uid, gid, follow_symlinks=False)


def free_port() -> int:
    """Give a TCP port that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
