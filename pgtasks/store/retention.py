"""The statements that let history go when it is old."""

from __future__ import annotations

from typing import NamedTuple

from pgtasks.store.session import Statement
from pgtasks.store.sql_files import sql

# Rows of a default partition that go in one transaction.
BATCH_ROWS = 5000
COUNTED_ROWS_MAX = 1_000_000


class Pruned(NamedTuple):
    """What one round removed: whole day partitions, or rows of a default partition."""

    partitions: int
    rows: int


class OldPartition(NamedTuple):
    """A day partition that is older than the retention; ``rows`` is an estimate, None without statistics."""

    name: str
    rows: int | None
    bytes: int


def prune(*, keep_s: float) -> Statement[Pruned]:
    """Remove one day, or one batch, of what is older than ``keep_s``."""
    return Statement(sql("partitions_prune"), {"keep_s": keep_s, "limit": BATCH_ROWS}, Pruned)


def old_partitions(*, keep_s: float) -> Statement[OldPartition]:
    """List the day partitions that are older than ``keep_s``."""
    return Statement(sql("partitions_old"), {"keep_s": keep_s}, OldPartition)


def count_old_rows(*, keep_s: float) -> Statement[int]:
    """Count what is older than ``keep_s`` in the default partitions, up to COUNTED_ROWS_MAX."""
    return Statement(sql("partitions_default_count"), {"keep_s": keep_s, "limit": COUNTED_ROWS_MAX}, int)
