"""pgtasks for the long-horizon harness: the producer and the sampler are here, the consumer is `pgtasks worker`.

What is measured is what a user of pgtasks would run: `App.aenqueue_many` adds the jobs, a worker process of its
own runs them, history is kept, every default is left on. Telemetry is JSON lines on standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, LiteralString

import jobs
import psycopg
from window import Window

from pgtasks import PgtasksError

HERE = Path(__file__).resolve().parent
SYSTEM = "pgtasks"
TRY_AGAIN_S = 0.2
# The harness gives five seconds for everything.
WORKER_GRACE_S, WORKER_END_S = 2, 3.5
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
DEPTHS = """
    SELECT pgtasks.backlog(%(queue)s) AS queue_depth, coalesce(sum(running), 0) AS running_depth,
        coalesce(sum(retrying), 0) AS retryable_depth, coalesce(sum(scheduled), 0) AS scheduled_depth
    FROM pgtasks.queue_stats WHERE queue = %(queue)s
"""
BACKLOG = "SELECT pgtasks.backlog(%(queue)s) AS depth"
PARTITIONS = """
    SELECT c.oid::regclass::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('pgtasks.history'::regclass, 'pgtasks.attempts'::regclass) ORDER BY 1
"""


def number(name: str, default: float) -> float:
    """Read a number of the environment."""
    return float(os.environ.get(name) or default)


@dataclass(frozen=True)
class Settings:
    """What the harness asks for."""

    database_url: str = field(default_factory=lambda: os.environ["DATABASE_URL"])
    mode: str = field(default_factory=lambda: os.environ.get("PRODUCER_MODE", "fixed"))
    pacing: str = field(default_factory=lambda: os.environ.get("PRODUCER_PACING", "adapter"))
    rate: float = field(default_factory=lambda: number("PRODUCER_RATE", 800))
    rate_file: str = field(default_factory=lambda: os.environ.get("PRODUCER_RATE_CONTROL_FILE", ""))
    depth: int = field(default_factory=lambda: int(number("TARGET_DEPTH", 1000)))
    batch_max: int = field(default_factory=lambda: int(number("PRODUCER_BATCH_MAX", 128)))
    batch_s: float = field(default_factory=lambda: number("PRODUCER_BATCH_MS", 25) / 1000)
    workers: int = field(default_factory=lambda: int(number("WORKER_COUNT", 32)))
    payload_bytes: int = field(default_factory=lambda: int(number("JOB_PAYLOAD_BYTES", 256)))
    every_s: float = field(default_factory=lambda: number("SAMPLE_EVERY_S", 5))
    window_s: float = field(default_factory=lambda: number("LATENCY_WINDOW_MS", 30_000) / 1000)
    instance: int = field(default_factory=lambda: int(number("BENCH_INSTANCE_ID", 0)))
    only_first_produces: bool = field(default_factory=lambda: bool(number("PRODUCER_ONLY_INSTANCE_ZERO", 0)))

    @property
    def observes(self) -> bool:
        """Whether this process reports what concerns all replicas."""
        return self.instance == 0

    @property
    def produces(self) -> bool:
        """Whether this process adds jobs."""
        return self.instance == 0 or not self.only_first_produces

    def target_rate(self) -> float:
        """Give the jobs per second that are asked for now: phases change them through a file."""
        with contextlib.suppress(OSError, ValueError):
            return float(Path(self.rate_file).read_text(encoding="utf-8")) if self.rate_file else self.rate
        return self.rate


class Adapter:
    """One replica: everything that it counts, and the loops that count it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stop = asyncio.Event()
        self.enqueued = self.completed = 0
        self.depths: dict[str, int] = {}
        self.windows = {name: Window(settings.window_s) for name in ("producer", "subscriber", "end_to_end")}

    # --- What goes out ---

    def emit(self, record: dict[str, Any]) -> None:
        """Print one record."""
        print(json.dumps({**record, "system": SYSTEM, "instance_id": self.settings.instance}), flush=True)

    def sample(self, at: str, metric: str, value: float, window_s: float) -> None:
        """Print one sample."""
        kind = {"kind": "adapter", "subject_kind": "adapter", "subject": ""}
        self.emit({"t": at, **kind, "metric": metric, "value": value, "window_s": window_s})

    def describe(self, connection: psycopg.Connection[Any]) -> None:
        """Print the descriptor: the manifest's tables, and the partitions that there are today."""
        manifest = json.loads((HERE / "adapter.json").read_text(encoding="utf-8"))
        revision = connection.execute("SELECT max(version_num) FROM pgtasks.schema_version").fetchone()
        self.emit(
            {
                "kind": "descriptor",
                "event_tables": [*manifest["event_tables"], *(name for (name,) in connection.execute(PARTITIONS))],
                "extensions": manifest["extensions"],
                "version": version("pgtasks"),
                "schema_version": revision[0] if revision else "",
                "db_name": connection.info.dbname,
                "started_at": now(),
            }
        )

    async def run_sampler(self) -> None:
        """Print all samples at each tick of the wall clock."""
        every_s, before = self.settings.every_s, (self.enqueued, self.completed, time.monotonic())
        while True:
            await asyncio.sleep(every_s - time.time() % every_s)
            after = (self.enqueued, self.completed, time.monotonic())
            self.tick([new - old for old, new in zip(before, after, strict=True)])
            before = after

    def tick(self, counted: list[float]) -> None:
        """Print all samples of one tick; a percentile of nothing is none."""
        at, (enqueued, completed, seconds) = now(), counted
        for name, window in self.windows.items():
            found = window.percentiles(*PERCENTILES.values(), now=time.monotonic())
            for suffix, value in zip(PERCENTILES, found or (), strict=bool(found)):
                self.sample(at, f"{name}_{suffix}_ms", value, self.settings.window_s)
                if name == "subscriber":
                    self.sample(at, f"claim_{suffix}_ms", value, self.settings.window_s)
        self.sample(at, "enqueue_rate", enqueued / seconds, self.settings.every_s)
        self.sample(at, "completion_rate", completed / seconds, self.settings.every_s)
        if self.settings.observes:
            for metric, depth in self.depths.items():
                self.sample(at, metric, depth, 0)
            self.sample(at, "total_backlog", sum(self.depths.values()), 0)
            target = self.settings.target_rate() if self.settings.mode == "fixed" else 0.0
            self.sample(at, "producer_target_rate", target, 0)

    # --- What is done ---

    async def run_producer(self) -> None:
        """Add jobs as the harness asks for them, in bulk."""
        numbered = 0
        async for count in self.asked():
            began, created_at = time.perf_counter(), time.time()
            padding = "x" * max(0, self.settings.payload_bytes - 64)
            batch = [jobs.job.prepare(numbered + each, created_at, padding) for each in range(count)]
            try:
                await jobs.app.aenqueue_many(batch)
            except PgtasksError as error:
                say(f"cannot enqueue: {error}")
                await asyncio.sleep(TRY_AGAIN_S)
                continue
            numbered, self.enqueued = numbered + count, self.enqueued + count
            self.windows["producer"].add((time.perf_counter() - began) * 1000, time.monotonic())

    async def asked(self) -> AsyncIterator[int]:
        """Yield how many jobs are to be added next, when they are."""
        if self.settings.mode == "depth-target":
            async for row in self.rows(BACKLOG, self.settings.batch_s):
                for count in self.batches(self.settings.depth - row["depth"]):
                    yield count
        if self.settings.pacing == "harness":
            async for count in tokens():
                yield count
        credit, before = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(self.settings.batch_s)
            at = time.monotonic()
            credit, before = credit + self.settings.target_rate() * (at - before), at
            for count in self.batches(int(credit)):
                credit -= count
                yield count

    def batches(self, jobs_in_all: int) -> Iterator[int]:
        """Cut a number of jobs into bulks."""
        while jobs_in_all > 0:
            count = min(jobs_in_all, self.settings.batch_max)
            jobs_in_all -= count
            yield count

    async def run_observer(self) -> None:
        """Read the depths now and then."""
        async for row in self.rows(DEPTHS, min(1.0, self.settings.every_s)):
            self.depths = {name: int(value) for name, value in row.items()}

    async def rows(self, query: LiteralString, every_s: float) -> AsyncIterator[dict[str, Any]]:
        """Yield the row of a query time and again, also after the server was away."""
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self.settings.database_url, autocommit=True, row_factory=psycopg.rows.dict_row
                ) as connection:
                    while True:
                        row = await (await connection.execute(query, {"queue": jobs.QUEUE})).fetchone()
                        yield row or {}
                        await asyncio.sleep(every_s)
            except psycopg.Error as error:
                say(f"cannot read the depths: {error}")
                await asyncio.sleep(TRY_AGAIN_S)

    async def run_worker(self) -> None:
        """Keep one worker, whose handlers report through a pipe; it ends with this process, and this one with it."""
        reading, writing = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pgtasks", "worker", "jobs:app", "--concurrency", str(self.settings.workers)),
            *("--shutdown-grace", str(WORKER_GRACE_S), "--log-level", "warning"),
            cwd=HERE,
            env={**os.environ, "PGTASKS_DSN": self.settings.database_url, jobs.PIPE: str(writing)},
            pass_fds=(writing,),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )
        os.close(writing)
        reports = asyncio.create_task(self.read_reports(reading))
        try:
            code = await process.wait()
            raise RuntimeError(f"the worker exited with {code}")
        finally:
            reports.cancel()
            await end(process)

    async def read_reports(self, descriptor: int) -> None:
        """Count what the handlers report."""
        async for line in lines(descriptor):
            for claimed_ms, ended_ms in json.loads(line):
                self.windows["subscriber"].add(claimed_ms, time.monotonic())
                self.windows["end_to_end"].add(ended_ms, time.monotonic())
                self.completed += 1

    async def run(self) -> int:
        """Do everything until SIGTERM; gives the exit code."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self.stop.set)
        parts = [self.run_worker(), self.run_sampler()]
        parts += [self.run_producer()] if self.settings.produces else []
        parts += [self.run_observer()] if self.settings.observes else []
        running = [asyncio.create_task(part) for part in parts]
        stopped = asyncio.create_task(self.stop.wait())
        done, _ = await asyncio.wait([*running, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            task.cancel()
        for outcome in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(outcome, Exception):
                say(f"{type(outcome).__name__}: {outcome}")
        await jobs.app.aclose()
        return 0 if stopped in done else 1


async def tokens() -> AsyncIterator[int]:
    """Yield the numbers of the harness's `ENQUEUE n` lines; after their end nothing is asked for any more."""
    async for line in lines(sys.stdin.fileno()):
        word, _, count = line.decode().strip().partition(" ")
        if word == "ENQUEUE" and count.isdigit():
            yield int(count)
    await asyncio.Event().wait()


async def lines(descriptor: int) -> AsyncIterator[bytes]:
    """Yield the lines that come through a pipe."""
    reader = asyncio.StreamReader(limit=2**24)
    with os.fdopen(descriptor, "rb", closefd=False) as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            async for line in reader:
                yield line
        finally:
            transport.close()


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), WORKER_END_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def now() -> str:
    """Give the time as the harness reads it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def say(text: str) -> None:
    """Log to standard error: standard output is telemetry."""
    print(f"[{SYSTEM}] {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the lifecycle mode that is asked for; gives the exit code."""
    scenario = os.environ.get("SCENARIO", "long_horizon")
    if scenario not in {"long_horizon", "migrate_only"}:
        say(f"there is no scenario {scenario!r}; there are long_horizon and migrate_only")
        return 2
    adapter = Adapter(Settings())
    os.environ["PGTASKS_DSN"] = adapter.settings.database_url
    subprocess.run([sys.executable, "-m", "pgtasks", "migrate"], check=True, stdout=sys.stderr)
    if scenario == "migrate_only":
        return 0
    with psycopg.connect(adapter.settings.database_url, autocommit=True) as connection:
        adapter.describe(connection)
    return asyncio.run(adapter.run())


if __name__ == "__main__":
    sys.exit(main())
