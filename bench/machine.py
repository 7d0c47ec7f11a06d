"""What a figure means nothing without: the machine, its load, and how fast its disk is right now."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

_BLOCK = os.urandom(8192)
_FSYNCS = 40
_KIB = 1024
ROOT = Path(__file__).resolve().parents[1]
# What a figure is about; a document's own text or a test may differ from the commit.
_MEASURED = ("pgtasks", "migrations", "bench/*.py")
_GIT_S = 10.0
# File systems that lose everything with the power: a sync costs nothing there.
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
DISK = Path("/var/tmp")  # noqa: S108 - made safely within, by mkdtemp
_MOUNTS = Path("/proc/mounts")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def facts() -> dict[str, Any]:
    """Describe the machine and the programs on it."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "python": platform.python_version(),
        "pgtasks": importlib.metadata.version("pgtasks"),
        "psycopg": importlib.metadata.version("psycopg"),
        "commit": commit(),
        "filesystem": filesystem(disk_folder()),
        "load_before": load(),
    }


def load() -> list[float]:
    """Give the load averages of the last 1, 5 and 15 minutes: what else was running."""
    return [round(value, 2) for value in os.getloadavg()]


def fsync_ms(folder: Path) -> float:
    """Give the median time of writing 8 KiB and syncing them, in a folder of the server's disk."""
    sync = getattr(os, "fdatasync", os.fsync)
    with tempfile.TemporaryFile(dir=folder) as probe:
        times_ms = []
        for _ in range(_FSYNCS):
            started = time.perf_counter()
            os.write(probe.fileno(), _BLOCK)
            sync(probe.fileno())
            times_ms.append((time.perf_counter() - started) * 1000)
    return statistics.median(times_ms)


def commit(root: Path = ROOT) -> str | None:
    """Name the commit that is measured, with a `+` when what is measured differs; None outside a checkout."""
    found = _git(root, "rev-parse", "--show-toplevel", "--short", "HEAD")
    if found is None or found.returncode != 0:
        return None
    *top, name = found.stdout.splitlines()
    # An unpacked archive within somebody's checkout is no part of it.
    if [Path(each).resolve() for each in top] != [root.resolve()]:
        return None
    differs = _git(root, "diff", "--quiet", "HEAD", "--", *_MEASURED)
    return f"{name}+" if differs is None or differs.returncode != 0 else name


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Ask git; None where there is none, or when it does not answer."""
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],  # noqa: S607 - whichever the machine has
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def disk_folder() -> Path:
    """Give the folder that the measured servers' data go to: on a disk, where one can be found."""
    if os.access(DISK, os.W_OK | os.X_OK) and filesystem(DISK) not in IN_MEMORY:
        return DISK
    return Path(tempfile.gettempdir())


def filesystem(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """Give the type of the file system that a folder is on, as Linux lists it; None on other systems."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    where, best, kind = folder.resolve(), Path(), None
    for line in lines:
        _, point, found, *_ = line.split()
        at = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), point))
        # Of two at one place, the later one lies on top.
        if where.is_relative_to(at) and len(at.parts) >= len(best.parts):
            best, kind = at, found
    return kind


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _KIB**3, 1)
