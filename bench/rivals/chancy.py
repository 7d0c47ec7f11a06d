"""Chancy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals.python import PythonRival


class Chancy(PythonRival):
    """Claims as many jobs as its queue has places, acknowledges in batches every so often."""

    name = "chancy"
    title = "Chancy"
    packages = ("chancy==0.26.0", "psycopg[binary]==3.3.9", "uvloop==0.23.0")
    settings = (
        "A queue with the asyncio executor, concurrency 500, which is also the size of a claim, and eager polling; "
        "updates are sent every 0.1 s instead of every second, so that a run does not end with waiting for them; "
        "psycopg with its C code, uvloop, default plugins, log at WARNING (it writes a line per job at INFO)."
    )
    sources = (
        "chancy/queue.py: eager_polling, concurrency, executor",
        "chancy/worker.py: flush and send_outgoing_interval, which its docstring says may be set",
        "chancy/executors/asyncex.py: for large numbers of jobs without the overhead of processes or threads",
    )
    keeps = "The row stays, as 'succeeded', until its pruner deletes it a day later (the default)."
    tables = ("chancy_jobs",)
    fill_sql = """
        INSERT INTO chancy_jobs (id, queue, func)
        SELECT uuidv7(), 'default', 'chancy_script.noop' FROM generate_series(1, %s)
    """
    unfinished_sql = "SELECT EXISTS (SELECT FROM chancy_jobs WHERE state <> 'succeeded')"
    finished_sql = "SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'"
    waiting_sql = "SELECT count(*) FROM chancy_jobs WHERE state = 'pending'"
    # Tried on a busy machine, against this: concurrency 100 0.5 of its rate, 1,000 0.75; updates every second 0.7,
    # every 0.02 s 0.7.
    options: ClassVar[Mapping[str, Any]] = {"concurrency": 500, "outgoing_s": 0.1}
