"""What the tests of the local server need to know about processes: which live, and for how long."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships without types

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 40.0
AS_ROOT = os.geteuid() == 0


def wait_until(condition: Callable[[], object], *, within_s: float = DEADLINE_S) -> None:
    """Wait until the condition holds; fail when it does not within the deadline."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def processes_of(directory: Path) -> list[str]:
    """Return every living process of a server or supervisor that works in a directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = process.cmdline()
            at_home = Path(process.cwd()).is_relative_to(directory)
        except psutil.Error:
            continue
        ours = "postgres" in "".join(words[:1]) or "pgtasks.embedded" in " ".join(words)
        named = any(str(directory) in word for word in words)
        if at_home or (ours and named):
            found.append(f"{process.pid} {' '.join(words)[:200]}")
    return found


def alive(pid: int) -> bool:
    """Whether a process exists and is not just waiting to be collected."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def start_python(code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start a Python process that can import the project; its output is a pipe."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
    )


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process, collect it and close its pipes."""
    process.kill()
    process.communicate()
