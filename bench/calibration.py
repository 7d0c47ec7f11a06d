"""Fixed pieces of work, one in pure Python and one in plain SQL: the units of CPU time that travel between machines.

What a task costs is compared with what these cost on the same processor, at the same clock rate and beside
the same neighbours. They do what a worker and its server do: small objects, JSON and dictionaries there, rows
inserted, found by index, changed and deleted here.
"""

from __future__ import annotations

import json
import time

from bench import cpu
from bench.database import Connection

UNITS = 20_000
ROWS = 20_000


def python_s() -> float:
    """Give the CPU seconds of the work in Python, all UNITS of it."""
    started_s = time.thread_time()
    kept: dict[int, tuple[str, object]] = {}
    for number in range(UNITS):
        text = json.dumps({"id": number, "name": "noop", "payload": [number, None, True]})
        kept[number] = (text, json.loads(text))
        if number >= 500:  # noqa: PLR2004 - as many as a worker holds at once
            del kept[number - 500]
    return time.thread_time() - started_s


def sql_s(connection: Connection) -> float | None:
    """Give the CPU seconds of the server process for the work in SQL, all ROWS of it; None where nothing says so."""
    pid = connection.info.backend_pid
    connection.execute("DROP TABLE IF EXISTS calibration")
    connection.execute("CREATE TABLE calibration (id bigint PRIMARY KEY, name text, at timestamptz)")
    started_s = cpu.cpu_s_of(pid)
    connection.execute(
        "INSERT INTO calibration SELECT n, 'noop', clock_timestamp() FROM generate_series(1, %s) n", (ROWS,)
    )
    connection.execute("UPDATE calibration SET at = clock_timestamp()")
    connection.execute("DELETE FROM calibration WHERE id = ANY(ARRAY(SELECT generate_series(1, %s)))", (ROWS,))
    ended_s = cpu.cpu_s_of(pid)
    connection.execute("DROP TABLE calibration")
    return None if started_s is None or ended_s is None else ended_s - started_s
