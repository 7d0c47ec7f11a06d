"""Rivals in Python: each has an environment of its own, and one script that does all that only it can do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals import install
from bench.rivals.rival import SCRIPTS, Command, PostgresRival


class PythonRival(PostgresRival):
    """One whose script `scripts/<name>_script.py` is called with a mode, the address and its options."""

    # What the script configures it with; the best that we found, beside what its authors say.
    options: ClassVar[Mapping[str, Any]] = {}
    # What differs where it is idle and what counts is how soon it picks a task up.
    idle_options: ClassVar[Mapping[str, Any]] = {}
    # The oldest Python that it runs on.
    python: ClassVar[tuple[int, int]] = (3, 11)

    def install(self) -> None:
        """Install it into an environment of its own."""
        install.python_environment(self.folder, self.packages, python=install.python_of(self.python))

    def prepare(self, dsn: str) -> None:
        """Make its schema, with its own means."""
        install.checked(self.script("prepare", dsn).argv)

    def worker(self, dsn: str, tasks: int) -> Command:
        """Give the worker that runs so many tasks."""
        return self.script("work", dsn, tasks=tasks)

    def enqueue(self, dsn: str, tasks: int, how: str) -> Command:
        """Give the process that enqueues through its API."""
        return self.script("enqueue", dsn, tasks=tasks, how=how)

    def latency(self, dsn: str, tasks: int, every_s: float) -> Command:
        """Give the process that is an idle worker, and enqueues a task every so often."""
        return self.script("latency", dsn, **self.idle_options, tasks=tasks, every_s=every_s)

    def script(self, mode: str, dsn: str, **facts: Any) -> Command:
        """Give the call of its script, in its environment."""
        python, script = self.folder / "bin" / "python", SCRIPTS / f"{self.name}_script.py"
        return Command([str(python), str(script), mode, dsn, json.dumps({**self.options, **facts})])
