"""One measured run of a rival: its worker, its server processes, and what they did."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, Self

import psycopg

from bench.cpu import BackendSampler, cpu_s_of_process, is_supported
from bench.database import Bench
from bench.report import progress
from bench.rivals.rival import Command, Place, Rival, Unavailable

# Interpreters start, connect and check their schema; on a busy machine that takes its time.
START_S = 60.0
# After a SIGTERM; then it is killed, which is no part of what is measured.
STOP_S = 20.0
# Between the end of a process's output and its own.
END_S = 1.0
# What enqueueing may take in all.
API_S = 300.0
# How often the database is asked whether all is finished: once the last handler has run, and before
# that, for rivals that cannot say when the last one has.
POLL_S, BLIND_POLL_S = 0.005, 0.1
_ERROR_TAIL = 600


class RivalRun(NamedTuple):
    """What a rival did and used. None: not to be had here, or not a thing that it has."""

    # What it had finished in that time, from its first handler on: everything that was put in, or not.
    tasks: int
    seconds: float
    is_whole: bool
    cpu_s: float
    backend_cpu_s: float | None
    wal_bytes: int | None
    commits: int | None
    # What it had finished when its processes had ended: the costs are those of so many.
    tasks_in_all: int

    @property
    def rate(self) -> float:
        """Tasks per second from the first handler to the last acknowledgement."""
        return self.tasks / self.seconds


class Counted(NamedTuple):
    """What the server has counted so far: all of its WAL, and the commits in one database."""

    wal_bytes: int
    commits: int


def event_of(line: str) -> dict[str, Any] | None:
    """Read a line of a worker; None when it is no event but its own chatter."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


@dataclass
class Process:
    """A running script of a rival, in a process group of its own."""

    popen: subprocess.Popen[str]
    errors: IO[str]
    events: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    cpu_s: float = 0.0

    @classmethod
    def start(cls, command: Command, errors: IO[str]) -> Self:
        """Start it; what it prints is read by a thread."""
        popen = subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        process = cls(popen, errors)
        threading.Thread(target=process._read, name="rival", daemon=True).start()
        return process

    def expect(self, name: str, seconds: float) -> dict[str, Any] | None:
        """Wait for an event; None when the time is over or the process has ended before."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                event = self.events.get(timeout=left)
                if event["event"] == name:
                    return event
                if event["event"] == "":
                    return None
        return None

    def has_ended(self) -> bool:
        """Tell whether it ended, and count its CPU time (with that of its children) then."""
        if self.popen.returncode is None:
            pid, status, usage = os.wait4(self.popen.pid, os.WNOHANG)
            if pid:
                self.popen.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = usage.ru_utime + usage.ru_stime
        return self.popen.returncode is not None

    def wait(self, seconds: float) -> bool:
        """Wait until it ended; gives whether it did."""
        end = time.monotonic() + seconds
        while not self.has_ended() and time.monotonic() < end:
            time.sleep(POLL_S)
        return self.has_ended()

    def signal(self, number: int) -> None:
        """Send a signal to the process that we started, or to its whole group for SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.popen.pid, number)
            elif not self.has_ended():
                self.popen.send_signal(number)

    def complaint(self) -> str:
        """Give the end of what it said on standard error."""
        self.errors.seek(0)
        said = " / ".join(self.errors.read().strip()[-_ERROR_TAIL:].split("\n")[-4:])
        return f"its script exited with {self.popen.returncode}: {said or 'without a word'}"

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as lines:
            for line in lines:
                event = event_of(line)
                if event is not None:
                    self.events.put(event)
        self.events.put({"event": ""})


@contextlib.contextmanager
def started(command: Command) -> Iterator[Process]:
    """Start a script of a rival; whatever is left of it is killed afterwards."""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            process = Process.start(command, errors)
        except OSError as error:
            raise Unavailable(f"{command.argv[0]} does not start: {error.strerror}") from error
        try:
            yield process
        finally:
            process.signal(signal.SIGKILL)
            process.wait(STOP_S)


def nothing(_dsn: str) -> contextlib.AbstractContextManager[None]:
    """Surround a run with nothing."""
    return contextlib.nullcontext()


def run(
    rival: Rival,
    bench: Bench,
    tasks: int,
    seconds: float,
    around: Callable[[str], contextlib.AbstractContextManager[None]] = nothing,
    *,
    may_run_dry: bool = False,
) -> RivalRun:
    """Measure a rival over a full queue until it is empty, or for so many seconds from its first handler.

    It has to be installed. `around`, which gets the rival's database, is entered between the filling and
    the worker's start, and left after its end. Unless the backlog `may_run_dry` before the time is over, it is
    said when it did: the rate is then one of less time than was asked for. Raises Unavailable when it fails.
    """
    _leave_nothing_of_ours(bench)
    with rival.place(bench) as place, contextlib.ExitStack() as surroundings:
        tasks = rival.fill(place.dsn, tasks)
        surroundings.enter_context(around(place.dsn))
        before = _counted(bench, place)
        server_before_s = _server_cpu_s(place)
        with contextlib.ExitStack() as stack:
            sampler = None
            if place.database is not None:
                sampler = stack.enter_context(BackendSampler(bench.admin_dsn, place.database, all_of_them=True))
            process = stack.enter_context(started(rival.worker(place.dsn, tasks)))
            done, span_s = _measured(rival, place, process, tasks, seconds)
            process.signal(signal.SIGTERM)
            process.wait(STOP_S)
        if done == tasks and not may_run_dry:
            progress(f"  {rival.name}: its backlog of {tasks:,} tasks lasted for {span_s:.1f} of {seconds:g} s only")
        after = _counted(bench, place)
        used = None if before is None or after is None else [b - a for a, b in zip(before, after, strict=True)]
        backend_cpu_s = sampler.cpu_s() if sampler else _difference(server_before_s, _server_cpu_s(place))
        return RivalRun(
            tasks=done,
            seconds=span_s,
            is_whole=done == tasks,
            cpu_s=process.cpu_s,
            backend_cpu_s=backend_cpu_s if is_supported() else None,
            wal_bytes=used[0] if used else None,
            commits=used[1] if used else None,
            tasks_in_all=tasks if done == tasks else rival.finished(place.dsn),
        )


def enqueue(rival: Rival, bench: Bench, tasks: int, how: str) -> float:
    """Give the tasks per second that a rival's API takes, `how` = "single" or "bulk", while no worker runs.

    It has to be installed. Raises Unavailable when it fails, NotImplementedError when it is not measured.
    """
    _leave_nothing_of_ours(bench)
    with rival.place(bench) as place, started(rival.enqueue(place.dsn, tasks, how)) as process:
        first = process.expect("first", START_S)
        last = first and process.expect("last", API_S)
        if first is None or last is None:
            raise _failure(process, "it enqueued nothing, or not everything")
        waiting = rival.waiting(place.dsn)
        if waiting not in {None, tasks}:
            raise Unavailable(f"{waiting} of {tasks} tasks wait in its table after it enqueued them")
        return tasks / (float(last["at"]) - float(first["at"]))


def latencies_s(rival: Rival, bench: Bench, tasks: int, every_s: float) -> list[float]:
    """Give how long each task took from right before it was enqueued to its handler, one every so often.

    It has to be installed. Raises Unavailable when it fails, NotImplementedError when it is not measured.
    """
    _leave_nothing_of_ours(bench)
    with rival.place(bench) as place, started(rival.latency(place.dsn, tasks, every_s)) as process:
        found = process.expect("latencies", START_S + tasks * every_s + API_S)
        if found is None:
            raise _failure(process, "its tasks did not arrive")
        return [float(latency_s) for latency_s in found["s"]]


def _leave_nothing_of_ours(bench: Bench) -> None:
    # After a round our tables are full of dead rows, and an autovacuum of them would fall into the rival's minutes.
    bench.empty()


def _failure(process: Process, otherwise: str) -> Unavailable:
    return Unavailable(process.complaint() if process.wait(END_S) else otherwise)


def _measured(rival: Rival, place: Place, process: Process, tasks: int, seconds: float) -> tuple[int, float]:
    """Give how many tasks were finished in which time."""
    first = process.expect("first", START_S)
    if first is None:
        raise _failure(process, f"it ran no task within {START_S:g} s")
    start_s, end_s = float(first["at"]), float(first["at"]) + seconds
    last = None
    while time.time() < end_s:
        if last is None:
            last = process.expect("last", min(BLIND_POLL_S, max(0.0, end_s - time.time())))
        else:
            time.sleep(POLL_S)
        ended = process.has_ended()
        # Before the question, which may walk all that is dead: the time that it takes is not the rival's.
        asked_s = time.time()
        if (last or not rival.says_last or ended) and not rival.unfinished(place.dsn):
            finished = rival.finished(place.dsn)
            if finished != tasks:
                raise Unavailable(f"only {finished} of {tasks} tasks were finished, and none was left")
            return finished, asked_s - start_s
        if ended:
            raise Unavailable(process.complaint())
    at_s = time.time()
    finished = rival.finished(place.dsn)
    if not finished:
        raise Unavailable(f"it finished no task in {seconds:g} s")
    return finished, at_s - start_s


def _counted(bench: Bench, place: Place) -> Counted | None:
    """Read the counters of the server; those of a connection are complete once it has ended."""
    if place.database is None:
        return None
    with psycopg.connect(bench.admin_dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, xact_commit"
            " FROM pg_stat_database WHERE datname = %s",
            (place.database,),
        ).fetchone()
    assert row is not None
    return Counted(*row)


def _server_cpu_s(place: Place) -> float | None:
    return None if place.server_pid is None else cpu_s_of_process(place.server_pid)


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
