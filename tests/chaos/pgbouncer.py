"""A PgBouncer between the workers and the primary, where its program is installed."""

import os
import shutil
import subprocess
import tempfile
import types
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg

from pgtasks.embedded.account import server_account
from pgtasks.embedded.process import launch
from tests.chaos.node import free_port
from tests.database import wait_until

_START_S_MAX = 30.0


def binary() -> str | None:
    """Give the path of the program, None where it is not installed."""
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))


class PgBouncer:
    """A context manager; `dsn` leads through it. For one server, because it does not follow a failover.

    In transaction mode workers need `--pooler transaction`. Its processes die with this one.
    """

    def __init__(self, dsn: str, *, pool_size: int = 20, mode: str = "transaction") -> None:
        self._target = {key: str(value) for key, value in psycopg.conninfo.conninfo_to_dict(dsn).items()}
        self._pool_size, self._mode = pool_size, mode
        self._port = free_port()
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._account = server_account()
        self._folder = Path(tempfile.mkdtemp(prefix="pgtasks-pgbouncer-"))
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(self._settings(), encoding="utf-8")
        if self._account is not None:
            for path in (self._folder, settings):
                os.chown(path, self._account.uid, self._account.gid)
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"--- PgBouncer printed:\n{self.log()[-2000:]}")
        self.close()

    @property
    def dsn(self) -> str:
        """The address of the server's database through it."""
        return psycopg.conninfo.make_conninfo(
            "", **{**self._target, "host": "127.0.0.1", "port": str(self._port), "sslmode": "disable"}
        )

    def log(self) -> str:
        """Give all that it printed."""
        path = self._folder / "pgbouncer.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start it, if it does not run, and wait until a client gets through to the server."""
        self.launch()
        wait_until(self._answers, _START_S_MAX, 0.05, hint=lambda: f"PgBouncer does not answer:\n{self.log()}")

    def launch(self) -> None:
        """Start it, if it does not run, whether the server is there or not."""
        if self._process is not None and self._process.poll() is None:
            return
        program = binary()
        assert program is not None, "pgbouncer is not installed"
        with (self._folder / "pgbouncer.log").open("ab") as log:
            argv = [program, str(self._folder / "pgbouncer.ini")]
            self._process = launch(argv, account=self._account, cwd=self._folder, output=log)

    def kill(self) -> None:
        """Kill it with SIGKILL, which ends every connection through it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Kill it and remove its files; may be called again."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.dsn, connect_timeout=5, prepare_threshold=None):
            return True
        return False

    def _settings(self) -> str:
        to = self._target
        return "\n".join(
            [
                "[databases]",
                f"{to['dbname']} = host={to['host']} port={to['port']} user={to['user']} password={to['password']}",
                "[pgbouncer]",
                "listen_addr = 127.0.0.1",
                f"listen_port = {self._port}",
                "unix_socket_dir =",
                "auth_type = any",
                f"pool_mode = {self._mode}",
                *(["ignore_startup_parameters = options"] if self._mode == "session" else []),
                f"default_pool_size = {self._pool_size}",
                "max_client_conn = 1000",
                "server_login_retry = 1",
                "server_connect_timeout = 5",
                "",
            ]
        )
