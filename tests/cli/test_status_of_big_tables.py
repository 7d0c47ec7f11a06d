"""`pgtasks status` reads a bounded part of big tables, and marks what it estimates."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from rich.console import Console

from pgtasks.cli.status_screen import document, screen
from pgtasks.store import overview, reading, watching
from pgtasks.store.overview import Budget, rates_of, read_overview, worth_counting
from pgtasks.store.reading import CompletedRow, SampledHistoryRow
from pgtasks.store.session import Statement, connect, index_order
from tests.database import Connection, Server, rows, value

TASKS = 200_000
UNKNOWN = 3


@pytest.fixture(scope="module")
def big(server: Server) -> Iterator[str]:
    """The address of a database with 200,000 waiting and 200,000 finished tasks."""
    address = server.create(migrated=True)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO pgtasks.tasks (name, queue, run_at) SELECT 'odd', 'big', now() - interval '1 hour'"
            " FROM generate_series(1, %s)",
            (UNKNOWN,),
        )
        connection.execute(
            "INSERT INTO pgtasks.tasks (name, queue) SELECT 'known', CASE WHEN g %% 100 = 0 THEN 'small' ELSE 'big' END"
            " FROM generate_series(1, %s) g",
            (TASKS,),
        )
        connection.execute(
            "INSERT INTO pgtasks.history (id, created_at, run_at, attempt, priority, status, queue, name, payload,"
            " finished_at) SELECT g, now(), now(), 1, 0, 'completed', 'big', 'known', '{}',"
            " now() - interval '50 minutes' + g * interval '14 ms' FROM generate_series(1, %s) g",
            (TASKS,),
        )
        connection.execute(
            "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)"
            " VALUES (gen_random_uuid(), 'w', '{big,small}', '{known}', 1, 3000, '1')"
        )
        connection.execute("VACUUM ANALYZE")
    yield address
    server.drop(address)


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.timeout(90)
def test_estimates_are_near_and_marked(big: str) -> None:
    """The small queue stays exact beside the big one."""
    with connect(big, "cli") as connection:
        shown = document(read_overview(connection))
    queues = {queue["queue"]: queue for queue in shown["queues"]}
    assert queues["small"]["queued"] == TASKS // 100
    assert not queues["small"]["estimated"]
    assert queues["big"]["estimated"]
    assert queues["big"]["queued"] == pytest.approx(TASKS * 0.99, rel=0.25)
    assert queues["big"]["completed_last_hour_estimated"]
    assert queues["big"]["completed_last_hour"] == pytest.approx(TASKS, rel=0.25)
    assert shown["totals"]["estimated"]


@pytest.mark.pg
@pytest.mark.slow
def test_unknown_names_are_found_at_the_head_of_a_long_queue(big: str) -> None:
    """Three among 200,000: nobody claims them, so that is where they stay."""
    with connect(big, "cli") as connection:
        warnings = document(read_overview(connection))["warnings"]
    # Soon after midnight there is also one about a partition: the finished tasks are yesterday's.
    (unknown,) = (one for one in warnings if one["kind"] == "unknown_name")
    assert unknown["name"] == "odd"
    assert unknown["waiting"] >= UNKNOWN


@pytest.mark.pg
@pytest.mark.slow
def test_the_screen_marks_estimates(big: str) -> None:
    """With a tilde, and few digits."""
    console = Console(width=80, record=True, file=StringIO())
    with connect(big, "cli") as connection:
        console.print(screen(read_overview(connection)))
    text = console.export_text()
    assert "~1" in text or "~2" in text
    assert max(map(len, text.splitlines())) <= 80


NOW = datetime.now(UTC)
LATELY = NOW - timedelta(seconds=2)
STATEMENTS: list[tuple[Statement[Any], int]] = [
    (reading.queues(limit=1000), 1000),
    (reading.sample(pages=overview.STATUS.pages), 120_000),
    (reading.count(["big", "small"], limit=20_001), 20_001),
    (reading.heads(["big", "small"], limit=2000), 2000),
    (reading.running(limit=100_000), 1000),
    (reading.workers(limit=1000), 1000),
    (reading.lost(tolerated_s=5, limit=20), 1000),
    (reading.dead(["big"], limit=100_001), 100_001),
    (reading.sample_history(pages=overview.HISTORY_PAGES, period_s=3600, recent_s=60), 120_000),
    (reading.completed(period_s=3600, limit=100_001), 100_001),
    (reading.completed(period_s=60, limit=20_001), 20_001),
    (watching.running(scan=2000, limit=200), 2000),
    (watching.completed(LATELY, NOW, limit=20_000), 20_000),
    (watching.failed(LATELY, NOW, limit=20_000), 20_000),
    (watching.failures(LATELY, scan=1000, limit=100), 1000),
]


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.parametrize(("statement", "most"), STATEMENTS, ids=lambda value: "" if isinstance(value, int) else None)
def test_no_step_reads_more_than_its_bound(big: str, statement: Statement[Any], most: int) -> None:
    """Counted in rows that a scan gave or threw away, of tables that have 200,000."""
    with psycopg.connect(big, autocommit=True) as connection:
        assert most_read(connection, statement) <= most


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.parametrize("make", [reading.count, reading.heads])
def test_a_long_queue_is_not_sorted_while_there_are_no_statistics(
    fresh_database: str, make: Callable[..., Statement[Any]]
) -> None:
    """A bulk that has just come in: the planner takes its queue for a short one."""
    with connect(fresh_database, "cli") as connection:
        rows(connection, "INSERT INTO pgtasks.tasks (name) SELECT 'a' FROM generate_series(1, 20000)")
        statement = make(["default"], limit=1000)
        assert most_read(connection, statement) > 1000
        with index_order(connection):
            assert most_read(connection, statement) == 1000


@pytest.mark.pg
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="no /proc with the time of a process")
def test_a_look_takes_little_of_the_servers_time(big: str) -> None:
    """Under 300 ms of its CPU, the least of three; what is read is bounded, so that a million rows cost the same."""
    took_ms = []
    with connect(big, "cli") as connection:
        clock = Path(f"/proc/{connection.info.backend_pid}/schedstat")
        for _ in range(3):
            before = int(clock.read_text().split()[0])
            read_overview(connection)
            took_ms.append((int(clock.read_text().split()[0]) - before) / 1e6)
    assert min(took_ms) < 300


def most_read(connection: Connection, statement: Statement[Any]) -> int:
    """Return how many rows the busiest scan of a statement's plan gave or threw away."""
    text = psycopg.ClientCursor(connection).mogrify(statement.sql, statement.params)
    plan = value(connection, "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + text)
    return max(rows_read(node) for node in scans(plan[0]["Plan"]))


def rows_read(node: dict[str, Any]) -> int:
    """Return how many rows a scan gave or threw away."""
    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int(read * (1 if node["Actual Loops"] < 10 else node["Actual Loops"]))


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a plan that read a table."""
    if "Relation Name" in plan:
        yield plan
    for child in plan.get("Plans", []):
        yield from scans(child)


@pytest.mark.pg
@pytest.mark.slow
def test_big_payloads_stay_where_they_are(fresh_database: str) -> None:
    """P-03: nothing of the out-of-line storage is read."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO pgtasks.tasks (name, payload) SELECT 'a', jsonb_build_object('x',"
            " (SELECT string_agg(md5(g::text || i), '') FROM generate_series(1, 1000) i))"
            " FROM generate_series(1, 100) g"
        )
        before = _toast_reads(connection)
        with connect(fresh_database, "cli") as ours:
            assert document(read_overview(ours))["totals"]["queued"] == 100
            rows(connection, "SELECT pg_stat_force_next_flush()")
        assert _toast_reads(connection) == before


def _toast_reads(connection: Connection) -> int:
    rows(connection, "SELECT pg_stat_force_next_flush()")
    read = value(
        connection,
        "SELECT coalesce(toast_blks_read, 0) + coalesce(toast_blks_hit, 0) FROM pg_statio_all_tables"
        " WHERE schemaname = 'pgtasks' AND relname = 'tasks'",
    )
    return int(read)


def test_the_smallest_queues_are_counted_first() -> None:
    """As far as the budget goes, and none that is far above the limit."""
    budget = Budget(pages=1, queue_rows=1000, rows=1200, dead_rows=1)
    assert worth_counting({"a": 2000, "b": 5, "c": 0}, budget) == ["c", "b"]
    assert worth_counting({str(n): 500 for n in range(5)}, budget) == ["0", "1"]
    assert worth_counting({"near": 1100}, budget) == ["near"]


@pytest.mark.pg
def test_queues_with_many_dead_letters_share_what_is_counted(fresh_database: str) -> None:
    """Those with few stay exact; the others are counted to their share, and the statistics say what is left."""
    with psycopg.connect(fresh_database, autocommit=True) as owner, connect(fresh_database, "cli") as connection:
        owner.execute(
            "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, attempt, priority, reason, queue, name, payload)"
            " SELECT g, now(), now(), 1, 0, 'exhausted', (ARRAY['few', 'a', 'b'])[least(3, 1 + g / 6)], 'n', '{}'"
            " FROM generate_series(1, 60) g"
        )
        owner.execute("ANALYZE pgtasks.dead_letters")
        budget = Budget(pages=1, queue_rows=1, rows=1, dead_rows=20)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(overview, "DEAD_ROWS_FIRST", 5)
            queues, _ = overview.read_counts(connection, budget)
    assert {name: (queue.dead, queue.dead_estimated) for name, queue in queues.items()} == {
        "few": (5, False),
        "a": (6, False),
        "b": (49, True),
    }


def test_a_rate_beyond_the_count_comes_from_the_sample_or_the_span() -> None:
    """Whichever knows more."""
    when = value_at
    partial = [CompletedRow("q", 15_000, when(0), when(2)), CompletedRow("p", 5_001, when(1), when(2))]
    assert rates_of(partial, []) == {"q": 7500.0, "p": 2500.5}
    sample = [SampledHistoryRow("q", 9000, 3000, 1.0)]
    assert rates_of(partial, sample) == {"q": 5000.0}
    assert rates_of([CompletedRow("q", 30, when(0), when(1))], sample) == {"q": 0.5}
    assert rates_of([], sample) == {}


def value_at(second: int) -> datetime:
    """Return a moment."""
    return datetime(2026, 11, 29, 21, 0, second, tzinfo=UTC)
