"""Oban for Python (oban-py), in its free edition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals.python import PythonRival


class Oban(PythonRival):
    """Claims as many jobs as its queue has places, acknowledges one by one within a transaction."""

    name = "oban"
    title = "Oban (oban-py)"
    packages = ("oban==0.7.0",)
    python = (3, 12)
    settings = (
        "A queue with limit 500, which is also the size of a claim, on a pool of up to 10 connections (the default, "
        "which its documentation calls enough whatever the limit is); uvloop, as its own CLI runs. "
        "Bulk acknowledgement is a feature of the licensed Oban Pro, which is not measured."
    )
    sources = (
        "https://github.com/oban-bg/oban-py/blob/main/docs/production.md, Sizing the Connection Pool",
        "https://github.com/oban-bg/oban-py, README: Oban Pro, Optimizations",
        "oban/_producer.py: _get_jobs, _debounce; oban/_query.py: _ack_jobs; oban/cli.py: uvloop",
    )
    keeps = "The row stays, as 'completed', until its pruner deletes it a day later (the default)."
    tables = ("oban_jobs",)
    fill_sql = """
        INSERT INTO oban_jobs (worker, queue, state)
        SELECT '__main__.noop', 'default', 'available' FROM generate_series(1, %s)
    """
    unfinished_sql = "SELECT EXISTS (SELECT FROM oban_jobs WHERE state <> 'completed')"
    finished_sql = "SELECT count(*) FROM oban_jobs WHERE state = 'completed'"
    waiting_sql = "SELECT count(*) FROM oban_jobs WHERE state = 'available'"
    # Tried on a busy machine, by CPU of worker and server together: limits of 100, 1,000 and 2,000, and no debounce,
    # are all within the noise (0.85 to 1.15) of this.
    options: ClassVar[Mapping[str, Any]] = {"limit": 500, "connections": 10, "debounce_s": 0.005}
