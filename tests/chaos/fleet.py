"""The workers of a run: real `pgtasks worker` processes, each of which can be killed, paused and replaced."""

import os
import signal
import subprocess
import tempfile
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from tests.database import wait_until
from tests.workers import READY_LINE, environment, program, start

Cause = Literal["kill", "terminate", "none"]
_POLITE_STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one worker process; `code` is negative for a signal.

    `cause` is what was done to it: `terminate` ones have to end with 0, and for those that ended by themselves
    (`none`) there must be a reason. `at` is CLOCK_MONOTONIC at the latest when it was replaced.
    """

    index: int
    pid: int
    code: int
    cause: Cause
    at: float


class Fleet:
    """So many places for workers, numbered from 0; a context manager, which kills all in the end.

    `dsn_of(i)` is the way of worker i to the database, such as its own proxy. `launcher` is the command that takes
    the arguments of `pgtasks` (`worker APP …`): by default the program itself, else for example
    `[sys.executable, "-m", "tests.chaos.planted", "unfenced_complete"]`. All methods may be called from any thread.
    """

    def __init__(
        self,
        app: str,
        dsn_of: Callable[[int], str],
        count: int,
        flags: Sequence[str] = (),
        launcher: Sequence[str] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.count = count
        self.restarts = 0
        self.exits: list[Exit] = []
        self._argv = [*(launcher or [program()]), "worker", app, *flags]
        self._dsn_of, self._env, self._given_folder = dsn_of, dict(env or {}), folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._causes: dict[int, Cause] = {}
        self._terminated: dict[int, subprocess.Popen[bytes]] = {}
        self._extra: dict[int, dict[str, str]] = {}
        self._lock = threading.RLock()
        self._stack = ExitStack()
        # The kernel kills a worker when the *thread* that started it ends, so one that lasts starts them all.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="fleet")
        self._folder = Path()

    def __enter__(self) -> Self:
        folder = self._given_folder or self._stack.enter_context(tempfile.TemporaryDirectory(prefix="pgtasks-fleet-"))
        self._folder = Path(folder)
        try:
            for index in range(self.count):
                self._processes.append(self._start(index))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(
                "\n".join(f"--- worker {i} ended with:\n{self.output(i)[-2000:]}" for i in range(self.count))
            )
        self.close()

    def close(self) -> None:
        """Kill every worker with SIGKILL and forget what they printed."""
        with self._lock:
            for process in self._processes:
                process.kill()
                process.wait()
            self._starter.shutdown()
            self._stack.close()

    def pid(self, index: int) -> int:
        """Give the process id of the worker at a place, which may be dead."""
        return self._processes[index].pid

    def pids(self) -> list[int]:
        """Give the process ids of the living workers."""
        return [process.pid for process in list(self._processes) if process.poll() is None]

    def alive(self, index: int) -> bool:
        """Say whether the worker at a place runs; a paused one does."""
        return self._processes[index].poll() is None

    def output(self, index: int) -> str:
        """Give what the workers at a place have printed, one after the other."""
        path = self._log(index)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def wait_ready(self, timeout_s: float = 60.0) -> Self:
        """Wait until every worker of the first generation has said that it started."""
        for index in range(self.count):
            wait_until(
                lambda index=index: READY_LINE in self.output(index) or not self.alive(index),  # type: ignore[misc]  # a default binds the loop's variable
                timeout_s,
                hint=lambda index=index: f"worker {index} printed:\n{self.output(index)}",  # type: ignore[misc]  # a default binds it, as above
            )
        return self

    def kill(self, index: int) -> None:
        """Kill the worker at a place with SIGKILL and collect it; `replace_dead` starts the next one."""
        with self._lock:
            if self.alive(index):
                self._causes[self.pid(index)] = "kill"
            self._processes[index].kill()
            self._processes[index].wait()

    def pause(self, index: int) -> None:
        """Stop a worker in its tracks (SIGSTOP), as a frozen virtual machine does."""
        self._processes[index].send_signal(signal.SIGSTOP)

    def resume(self, index: int) -> None:
        """Let a paused worker go on, where it has no idea that it was paused."""
        self._processes[index].send_signal(signal.SIGCONT)

    def terminate(self, index: int) -> None:
        """Ask a worker to stop (SIGTERM), as an init system does; `replace_dead` starts the next one."""
        with self._lock:
            if self.alive(index):
                self._causes[self.pid(index)] = "terminate"
            self._terminated[index] = self._processes[index]
            self._processes[index].terminate()

    def wait(self, index: int, timeout_s: float = _POLITE_STOP_S) -> int:
        """Wait for the end of the worker that was last asked to stop, and give its exit code.

        Somebody may have replaced it meanwhile. Raises AssertionError if it does not end.
        """
        try:
            return self._terminated.get(index, self._processes[index]).wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"worker {index} runs after {timeout_s:g} s:\n{self.output(index)}") from None

    def replace_dead(self) -> int:
        """Start a new worker at each place whose worker is dead, and give how many that were."""
        with self._lock:
            dead = [index for index in range(self.count) if not self.alive(index)]
            for index in dead:
                self._replace(index)
            return len(dead)

    def restart(self, index: int, **variables: str) -> None:
        """Kill the worker at a place and start another with these variables on top of the others'.

        Its successors get them too, until this is called again.
        """
        with self._lock:
            self.kill(index)
            self._extra[index] = variables
            self._replace(index)

    def stop_all(self, timeout_s: float = _POLITE_STOP_S) -> list[int]:
        """Ask all living workers to stop and give their exit codes, in the order of their places."""
        with self._lock:
            living = [index for index in range(self.count) if self.alive(index)]
            for index in living:
                self.terminate(index)
            return [self.wait(index, timeout_s) for index in living]

    def _replace(self, index: int) -> None:
        old = self._processes[index]
        self.exits.append(Exit(index, old.pid, old.wait(), self._causes.get(old.pid, "none"), time.monotonic()))
        self._processes[index] = self._start(index)
        self.restarts += 1

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        env = environment(
            self._dsn_of(index), "worker", **{**self._env, "CHAOS_WORKER": str(index), **self._extra.get(index, {})}
        )
        descriptor = os.open(self._log(index), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            return self._starter.submit(start, self._argv, env, descriptor).result()
        finally:
            os.close(descriptor)

    def _log(self, index: int) -> Path:
        return self._folder / f"worker-{index}.log"
