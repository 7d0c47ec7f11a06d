"""procrastinate: claims and acknowledges one job at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals.python import PythonRival


class Procrastinate(PythonRival):
    """Claims one job a round trip."""

    name = "procrastinate"
    title = "procrastinate"
    packages = ("procrastinate==3.10.0", "psycopg[binary]==3.3.9")
    settings = (
        "Six workers side by side in the process, because each claims one job a round trip, with concurrency 30 each "
        "(its documentation's example), on a pool of 20 connections; psycopg with its C code, LISTEN on, jobs never "
        "deleted (the default)."
    )
    sources = (
        "https://github.com/procrastinate-org/procrastinate, docs/howto/concurrency.md",
        "https://procrastinate.readthedocs.io/en/stable/howto/basics/worker.html",
        "procrastinate/worker.py: _fetch_and_process_jobs claims one job per statement",
    )
    keeps = "The row stays, as 'succeeded'; a row in procrastinate_events for each change of state is kept."
    tables = ("procrastinate_jobs", "procrastinate_events")
    fill_sql = """
        INSERT INTO procrastinate_jobs (queue_name, task_name)
        SELECT 'default', 'noop' FROM generate_series(1, %s)
    """
    unfinished_sql = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
    finished_sql = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
    waiting_sql = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'"
    # Tried on a busy machine, against this: one worker (its default) 0.2 to 0.6 of its rate, the same with concurrency
    # 100 and 20 connections no better, three workers 0.5, twelve on 30 connections 0.6 to 1.3, six with concurrency
    # 10 0.7 to 1.4; by CPU of worker and server together one worker takes 1.4 to 2 times as much.
    options: ClassVar[Mapping[str, Any]] = {"concurrency": 30, "connections": 20, "workers": 6}
    # Each of six hears of a new task and asks for it: 0.75 of the latency with one.
    idle_options: ClassVar[Mapping[str, Any]] = {"workers": 1}
