"""Supervisors with two workers, which all end with the test that started them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships without types
import pytest

from tests.database import Connection, rows, wait_until
from tests.trace import Trace
from tests.workers import WorkerProcess

APP = "tests.apps.leases:app"


def is_alive(pid: int) -> bool:
    """Tell whether a process is there that can do something, and not only its exit status."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


class Supervised:
    """A `pgtasks worker --processes` and the workers below it."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process

    def pids(self) -> list[int]:
        """The process ids of its living workers, oldest first."""
        with suppress(psutil.NoSuchProcess):
            return [one.pid for one in psutil.Process(self.process.pid).children() if is_alive(one.pid)]
        return []

    def wait_begun(self, count: int = 2, timeout_s: float = 20.0) -> list[int]:
        """Wait until that many workers have begun since the start, and return the living ones' ids."""

        def have_begun() -> bool:
            assert self.process.running, f"it exited with {self.process.process.returncode}"
            return len(self.said("worker started")) >= count

        wait_until(have_begun, timeout_s, hint=lambda: f"not {count} workers began:\n{self.process.output()}")
        return self.pids()

    def said(self, event: str) -> list[str]:
        """The lines about an event so far."""
        return [line for line in self.process.output().splitlines() if event in line]

    def end_all(self) -> None:
        """Kill it and its workers, and wait until none is left."""
        with suppress(psutil.NoSuchProcess):
            tree = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            for one in tree:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            # A dead one that nobody has reaped yet can do no harm.
            wait_until(lambda: not any(is_alive(one.pid) for one in tree))


Supervise = Callable[..., Supervised]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """The file in which the handlers of `tests.apps.leases` leave their marks."""
    return Trace(tmp_path / "trace")


@pytest.fixture
def supervise(dsn: str, trace: Trace) -> Iterator[Supervise]:
    """Start a supervisor with two workers, with the default lease."""
    with ExitStack() as stack:

        def start(*flags: str, app: str = APP, env: dict[str, str] | None = None, address: str = dsn) -> Supervised:
            variables = {"TRACE_FILE": str(trace.path), **(env or {})}
            process = stack.enter_context(WorkerProcess(app, address, "--processes=2", *flags, env=variables))
            supervised = Supervised(process)
            stack.callback(supervised.end_all)
            started.append(supervised)
            return supervised

        started: list[Supervised] = []
        yield start
        for one in started:
            print(f"--- supervisor {one.process.pid} printed:\n{one.process.output()}")  # noqa: T201 - shown when the test fails


def add_ticks(connection: Connection, seconds: float, count: int) -> None:
    """Add tasks that run for so long."""
    rows(
        connection,
        "SELECT pgtasks.enqueue('tick', jsonb_build_object('seconds', %s::float8)) FROM generate_series(1, %s::int)",
        seconds,
        count,
    )


def wait_started(trace: Trace, count: int, timeout_s: float = 10.0) -> None:
    """Wait until handlers have started that often."""
    wait_until(lambda: len(trace.marks("start")) >= count, timeout_s, 0.01)
