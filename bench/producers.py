"""Producers that are no part of what is measured: pgbench, PostgreSQL's own load generator, written in C.

Sixteen clients in Python would spend more of the CPU on themselves than the server spends on their
inserts, and a trigger's cost would drown in it.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.cpu import BackendSampler, is_supported
from bench.database import Bench
from bench.fleet import reap
from pgtasks.embedded.binaries import find_binaries

INSERT = "INSERT INTO pgtasks.tasks (name) VALUES ('noop')"
CALL = "SELECT pgtasks.enqueue('noop')"
# By this name the sampler finds its server processes.
_PART = "producer"
_THREADS = 2
# Beside the seconds that it was told to run for.
_LIMIT_S = 600.0
_DONE = re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE)
_RATE = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)


class Inserted(NamedTuple):
    """What producers did and used: the seconds are without those they took to connect."""

    tasks: int
    seconds: float
    client_cpu_s: float
    backend_cpu_s: float | None
    wal_bytes: int

    @property
    def rate(self) -> float:
        """Transactions per second."""
        return self.tasks / self.seconds


class Limit(NamedTuple):
    """When producers are done: after so many transactions in all, or so many seconds (one at least)."""

    tasks: int = 0
    seconds: float = 0.0


def run(bench: Bench, limit: Limit, *, clients: int, statement: str = INSERT) -> Inserted:
    """Run a statement over and over, each time in a transaction of its own, by so many sessions at once.

    The WAL is the server's, that of workers included. Raises AssertionError when anything failed.
    """
    each = max(1, limit.tasks // clients)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(f"{statement};\n")
        script.flush()
        command = [
            str(find_binaries().program("pgbench")),
            "--no-vacuum",
            "--protocol=prepared",
            f"--client={clients}",
            f"--jobs={min(clients, _THREADS)}",
            f"--transactions={each}" if limit.tasks else f"--time={max(1, round(limit.seconds))}",
            f"--file={script.name}",
            bench.dsn,
        ]
        before = bench.counters()
        with BackendSampler(bench.admin_dsn, bench.name) as sampler:
            said, cpu_s = _run(command, _LIMIT_S + limit.seconds)
        wal_bytes = bench.counters().wal_bytes - before.wal_bytes
    done, rate = _DONE.search(said), _RATE.search(said)
    assert done is not None, f"pgbench said nothing of what it did: {said}"
    assert rate is not None, f"pgbench gave no rate: {said}"
    tasks = int(done[1])
    assert not limit.tasks or tasks == each * clients, f"pgbench ran {tasks} of {each * clients} transactions"
    return Inserted(
        tasks=tasks,
        seconds=tasks / float(rate[1]),
        client_cpu_s=cpu_s,
        backend_cpu_s=sampler.cpu_s(_PART) if is_supported() else None,
        wal_bytes=wal_bytes,
    )


def _run(command: list[str], limit_s: float) -> tuple[str, float]:
    """Run it for so long at most; gives what it printed and the CPU seconds that it used."""
    with tempfile.TemporaryFile("w+") as said:
        try:
            process = subprocess.Popen(
                command,
                env={**os.environ, "PGAPPNAME": f"pgtasks/{_PART}/bench"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise AssertionError(f"{Path(command[0]).name} does not start: {error.strerror}") from error
        try:
            usage = reap(process, limit_s)
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        said.seek(0)
        text = said.read()
    assert process.returncode == 0, f"pgbench exited with {process.returncode}: {text}"
    return text, usage.ru_utime + usage.ru_stime
