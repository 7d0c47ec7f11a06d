"""Migrators as processes of their own."""

import subprocess
import sys
from pathlib import Path

from tests import workers
from tests.access import as_role

_CODE = """
import pathlib, sys
from pgtasks import schema
dsn, folder = sys.argv[1:]
schema.folder = lambda: pathlib.Path(folder)
schema.migrate(dsn, on_progress=lambda line: print(line, flush=True))
"""


class Migrator:
    """A process that migrates a database to the head of a folder of migrations."""

    def __init__(self, dsn: str, folder: Path, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            argv = [sys.executable, "-c", _CODE, as_role(dsn, "owner"), str(folder)]
            self.process: subprocess.Popen[bytes] = workers.start(argv, workers.environment(), output.fileno())

    def output(self) -> str:
        """Return what it has printed so far."""
        return self._log.read_text(encoding="utf-8")

    def wait(self, timeout_s: float = 15.0) -> int:
        """Wait for its end and return the exit code."""
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """Kill it with SIGKILL and collect it."""
        self.process.kill()
        self.process.wait()
