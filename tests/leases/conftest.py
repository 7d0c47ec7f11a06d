"""Fixtures of the lease tests: traces, and workers with short leases."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.trace import Trace
from tests.workers import WorkerProcess

APP = "tests.apps.leases:app"
LEASE_S = 2.0
SWEEP_S = 0.2
StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """The file in which the handlers of `tests.apps.leases` leave their marks."""
    return Trace(tmp_path / "trace")


@pytest.fixture
def start_worker(dsn: str, trace: Trace) -> Iterator[StartWorker]:
    """Start a worker with a short lease; all are killed in the end."""
    with ExitStack() as stack:

        def start(
            *flags: str,
            address: str = "",
            lease_s: float = LEASE_S,
            sweep_s: float = SWEEP_S,
            env: dict[str, str] | None = None,
        ) -> WorkerProcess:
            worker = WorkerProcess(
                APP,
                address or dsn,
                f"--lease={lease_s}",
                f"--sweep-interval={sweep_s}",
                "--safety-poll=0.5",
                *flags,
                env={"TRACE_FILE": str(trace.path), **(env or {})},
            )
            started.append(stack.enter_context(worker))
            return worker

        started: list[WorkerProcess] = []
        yield start
        for worker in started:
            print(f"--- worker {worker.pid} printed:\n{worker.output()}")  # noqa: T201 - shown when the test fails
