"""awa (awa-pg): a queue in Rust, with handlers in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bench.rivals import install
from bench.rivals.python import PythonRival


class Awa(PythonRival):
    """Claims, heartbeats and acknowledges in Rust; calls handlers on Python's event loop."""

    name = "awa"
    title = "awa (awa-pg)"
    packages = ("awa-pg==0.6.9",)
    settings = (
        "Queue storage (the engine of 0.6, which is meant for speed), one queue with 500 workers, two claimers and "
        "claims of 512, 20 connections; "
        "each job has its deadline of five minutes (the default, which we keep: without one it writes no lease)."
    )
    sources = (
        "https://github.com/hardbyte/awa/blob/main/docs/configuration.md, Queue storage tuning",
        "https://pypi.org/project/awa-pg/, What you get",
        "awa/client.py: start (claimers, claim_batch_size, deadline_duration_ms)",
    )
    keeps = "Appended to: entries, leases and batches of completions stay in partitions for a day (the default)."
    tables = ()
    fill_sql = ""
    # A completion is a place in an array of a batch; what is pruned later on is counted in the rollups.
    unfinished_sql = """
        SELECT (SELECT sum(pg_sequence_last_value(format('awa.%I', seq_name)::regclass)) FROM awa.queue_enqueue_heads)
             > (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)
             + (SELECT count(*) FROM awa.done_entries)
             + (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups)
    """
    finished_sql = """
        SELECT (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)
             + (SELECT count(*) FROM awa.done_entries WHERE state = 'completed')
             + (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups)
    """
    # The sequence that gives each entry its place in the queue.
    waiting_sql = (
        "SELECT coalesce(sum(pg_sequence_last_value(format('awa.%I', seq_name)::regclass)), 0)"
        " FROM awa.queue_enqueue_heads"
    )
    # Tried on a busy machine, against this: one claimer and claims of the default size 0.8, claims of 512 with one
    # claimer 0.8, 200 workers 0.7, 1,000 workers 0.8 of its rate. Without deadlines a task's WAL falls to a
    # sixteenth and its CPU by a tenth; but then nothing limits how long one runs, as everywhere else here.
    options: ClassVar[Mapping[str, Any]] = {
        "max_workers": 500,
        "connections": 20,
        "queue": {"claimers": 2, "claim_batch_size": 512},
    }
    # Half the latency, or the same, with few workers and one claimer.
    idle_options: ClassVar[Mapping[str, Any]] = {"max_workers": 10, "queue": {}}

    def insert(self, dsn: str, tasks: int) -> None:
        """Enqueue with its own means: what a backlog looks like is its secret."""
        install.checked(self.script("fill", dsn, tasks=tasks).argv)
