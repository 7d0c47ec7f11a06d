"""Rivals on Node.js: each has a folder of its own, with the Node.js that it runs on."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from bench.report import progress
from bench.rivals import install
from bench.rivals.rival import SCRIPTS, Command, PostgresRival, Unavailable

# The newest with long-term support, from the package that holds nothing but the program: both rivals'
# newest releases refuse Node.js 20, which distributions ship, and run faster on this one.
NODE = "24.22.3"
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class NodeRival(PostgresRival):
    """One whose script `scripts/<script_name>.mjs` is called with a mode, the address and its options."""

    # What the script configures it with; the best that we found, beside what its authors say.
    options: ClassVar[Mapping[str, Any]] = {}
    # The script's name, without its ending.
    script_name: ClassVar[str]

    def install(self) -> None:
        """Install it and its Node.js; nothing that a package brings is run meanwhile."""
        packages = [*self.packages, f"{_node_package()}@{NODE}"]
        if not install.is_stamped(self.folder, packages, self._node):
            npm = shutil.which("npm")
            if npm is None:
                raise Unavailable("it needs npm, which is not on the PATH")
            progress(f"bench: installing {', '.join(packages)} into {self.folder.name}")
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            quiet = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            install.checked([npm, "install", *quiet, "--prefix", str(self.folder), *packages], is_fetching=True)
            install.stamp(self.folder, packages)
        # Node.js looks for packages beside the script, wherever it is called from.
        for script in SCRIPTS.glob("*.mjs"):
            shutil.copy(script, self.folder)

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
        return self.script("latency", dsn, tasks=tasks, every_s=every_s)

    @property
    def _node(self) -> Path:
        """The Node.js that was installed with it."""
        return self.folder / "node_modules" / _node_package() / "bin" / "node"

    def script(self, mode: str, dsn: str, **facts: Any) -> Command:
        """Give the call of its script, in its folder."""
        script = self.folder / f"{self.script_name}.mjs"
        argv = [str(self._node), str(script), mode, dsn, json.dumps({**self.options, **facts})]
        # Its own performance tests set the latter; others do not know it.
        return Command(argv, {"NODE_ENV": "production", "NO_LOG_SUCCESS": "1"})


def _node_package() -> str:
    """Name the package that has Node.js for this machine."""
    return f"node-{platform.system().lower()}-{_MACHINES.get(platform.machine().lower(), platform.machine())}"
