"""Looks at a working worker and its tables: samples over time, and what a histogram says between two of them."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from bench import fleet
from bench.database import Bench

CLAIMS = "pgtasks_claim_seconds"
_TIMEOUT_S = 10.0
_MIB = 1024 * 1024
_P99 = 0.99


class Sample(NamedTuple):
    """One look: seconds since the start, memory, sizes, dead rows, and the histogram of all claims so far."""

    at_s: float
    worker_mib: float | None
    tasks_mib: float
    history_mib: float
    dead_rows: int
    dead_leases: int
    vacuums: int
    # By the upper bound of each bucket in seconds, how many claims took at most so long.
    claims: Mapping[str, int]


def sample(bench: Bench, at_s: float, pid: int, port: int) -> Sample:
    """Look at a worker process, its metrics page and the database."""
    row = bench.connection.execute(
        "SELECT pg_total_relation_size('pgtasks.tasks'), sum(pg_total_relation_size(h.relid)),"
        " t.n_dead_tup, l.n_dead_tup, t.autovacuum_count"
        " FROM pg_stat_all_tables AS t, pg_stat_all_tables AS l, pg_partition_tree('pgtasks.history') AS h"
        " WHERE t.relid = 'pgtasks.tasks'::regclass AND l.relid = 'pgtasks.leases'::regclass"
        " GROUP BY 1, 3, 4, 5"
    ).fetchone()
    assert row is not None
    tasks_bytes, history_bytes, dead_rows, dead_leases, vacuums = row
    worker_mib = fleet.memory_mib(pid)
    return Sample(
        at_s=round(at_s, 2),
        worker_mib=None if worker_mib is None else round(worker_mib, 2),
        tasks_mib=round(tasks_bytes / _MIB, 2),
        history_mib=round(float(history_bytes) / _MIB, 1),
        dead_rows=dead_rows,
        dead_leases=dead_leases,
        vacuums=vacuums,
        claims=buckets(page(port)),
    )


def page(port: int) -> str:
    """Read a worker's metrics page."""
    # No proxy of the environment leads to this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=_TIMEOUT_S) as reply:
        text: str = reply.read().decode()
        return text


def buckets(text: str) -> dict[str, int]:
    """Give the histogram of claims on a metrics page, by upper bound; empty when there is none yet."""
    return {
        one.labels["le"]: int(one.value)
        for family in text_string_to_metric_families(text)
        if family.name == CLAIMS
        for one in family.samples
        if one.name == f"{CLAIMS}_bucket"
    }


def claim_p99_ms(samples: Sequence[Sample], start_s: float, end_s: float) -> float | None:
    """Give the 99th percentile of the claims between two moments, within its bucket by interpolation."""
    before = [one for one in samples if one.at_s <= start_s] or samples[:1]
    if not before:
        return None
    first = before[-1]
    last = next((one for one in samples if one.at_s >= end_s), samples[-1])
    counts = {bound: count - first.claims.get(bound, 0) for bound, count in last.claims.items()}
    found = quantile(counts, _P99)
    return None if found is None else found * 1000


def quantile(counts: Mapping[str, int], share: float) -> float | None:
    """Give a quantile of a histogram whose counts include those of the lower bounds; None when it is empty."""
    total = counts.get("+Inf", 0)
    if total <= 0:
        return None
    wanted = share * total
    below_bound, below = 0.0, 0
    for bound, count in sorted(((float(bound), count) for bound, count in counts.items())):
        if count >= wanted:
            if bound == float("inf"):
                return below_bound
            part = (wanted - below) / (count - below) if count > below else 1.0
            return below_bound + part * (bound - below_bound)
        below_bound, below = bound, count
    return below_bound


def shown(value: float | None) -> str:
    """Give a figure for a line of progress."""
    return "-" if value is None else f"{value:.2f}"
