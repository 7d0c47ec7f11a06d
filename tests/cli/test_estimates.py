"""What comes from a sample is marked wherever it is shown, also where the sample has seen nothing."""

from io import StringIO

import psycopg
import pytest
from rich.console import Console

from pgtasks.cli.status_screen import document, screen
from pgtasks.store import overview
from pgtasks.store.overview import read_overview
from pgtasks.store.session import connect
from tests.database import rows

pytestmark = pytest.mark.pg


def test_a_queue_that_no_sample_has_seen_has_an_estimate_of_none(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that completed nothing, beside one that completed more than is counted, in the last hour and minute."""
    monkeypatch.setattr(overview, "HISTORY_PAGES", 8)
    monkeypatch.setattr(overview, "EXACT_ROWS_MAX", 100)
    monkeypatch.setattr(overview, "RECENT_ROWS_MAX", 100)
    with psycopg.connect(fresh_database, autocommit=True) as owner, connect(fresh_database, "cli") as connection:
        rows(owner, "INSERT INTO pgtasks.tasks (name, queue) VALUES ('a', 'idle')")
        before = document(read_overview(connection))
        rows(
            owner,
            "INSERT INTO pgtasks.history (id, created_at, run_at, attempt, priority, status, queue, name, payload,"
            " finished_at) SELECT g, now(), now(), 1, 0, 'completed', 'busy', 'a', '{}', now()"
            " FROM generate_series(1, 5000) g",
        )
        seen = read_overview(connection)
    idle, marks = before["queues"][0], ("completed_last_hour_estimated", "rate_per_s_estimated")
    assert [idle[mark] for mark in marks] == [False, False]
    after = document(seen)
    (idle,) = [queue for queue in after["queues"] if queue["queue"] == "idle"]
    assert (idle["completed_last_hour"], idle["rate_per_s"]) == (0, 0)
    assert all(one[mark] for one in (idle, after["totals"]) for mark in marks)
    console = Console(width=100, record=True, file=StringIO())
    console.print(screen(seen))
    (line,) = [line for line in console.export_text().splitlines() if line.strip().startswith("idle")]
    assert line.split()[-1] == "~0"
    assert line.split().count("~0") == 2
