"""What a figure means nothing without: the machine, its load, and how fast its disk is right now."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

_BLOCK = os.urandom(8192)
_FSYNCS = 40
_KIB = 1024


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


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _KIB**3, 1)
