"""B-02: two million finished rows go in less than a minute, and claims do not wait for it."""

import statistics
import threading
import time

import psycopg
import pytest

from tests.cli.conftest import Run, offline
from tests.database import Connection, value
from tests.long import LONG
from tests.retention.conftest import AddDay, fill

__all__ = ["offline"]
ROWS = 1_000_000
CLAIM = (
    "WITH due AS MATERIALIZED (SELECT id FROM pgtasks.tasks WHERE queue = 'default' AND priority = 0"
    " AND state = 'queued' AND run_at <= now() ORDER BY run_at, id LIMIT 10 FOR NO KEY UPDATE SKIP LOCKED)"
    " UPDATE pgtasks.tasks AS t SET attempt = attempt FROM due WHERE t.id = due.id"
)


@LONG
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_million_rows_go_while_claims_go_on(
    owner: Connection, fresh_database: str, add_day: AddDay, offline: Run
) -> None:
    """A million in partitions of old days, and a million in the default one, where they go by the batch."""
    for days_ago in (20, 19, 18, 17):
        add_day(days_ago, ROWS // 4)
    fill(owner, "history", "now() - interval '30 days'", ROWS)
    owner.execute("INSERT INTO pgtasks.tasks (name) SELECT 'add' FROM generate_series(1, 1000)")
    owner.execute("VACUUM ANALYZE")
    waited_s: list[float] = []
    done = threading.Event()

    def claim() -> None:
        with psycopg.connect(fresh_database, autocommit=True) as connection:
            while not done.is_set():
                began = time.monotonic()
                connection.execute(CLAIM.encode())
                waited_s.append(time.monotonic() - began)
                done.wait(0.005)

    claiming = threading.Thread(target=claim)
    claiming.start()
    began = time.monotonic()
    try:
        ran = offline("prune", "--json", "--dsn", fresh_database)
    finally:
        done.set()
        claiming.join()
    took_s = time.monotonic() - began
    p99_ms = statistics.quantiles(waited_s, n=100)[98] * 1000
    print(f"{took_s:.1f} s, claims p99 {p99_ms:.1f} ms, max {max(waited_s) * 1000:.0f} ms")  # noqa: T201 - the figures, with -s
    assert ran.json == {"partitions": 4, "rows": ROWS}
    assert value(owner, "SELECT count(*) FROM pgtasks.history") == 0
    assert took_s < 60
    assert p99_ms < 50
