"""`pgtasks dead`: replay moves each dead letter once, purge deletes what was meant, dry runs do nothing."""

import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from pgtasks.store import dead_letters
from pgtasks.store.dead_letters import Filters
from pgtasks.store.session import connect, fetch_all
from tests.cli.conftest import Run
from tests.database import Connection, rows, value, wait_until
from tests.workers import environment, program

pytestmark = pytest.mark.pg

INSERT = """
INSERT INTO pgtasks.dead_letters (
    id, created_at, run_at, finished_at, attempt, priority, reason, queue, name, payload, unique_key, error
)
SELECT g, '2026-01-01', now(), now() - %s::interval, 5, 3, %s, %s, %s, '{"a": 1}', %s || g, 'boom'
FROM generate_series(%s::bigint, %s::bigint) g
"""


def add(
    connection: Connection,
    first: int,
    last: int,
    *,
    ago: str = "0",
    reason: str = "exhausted",
    queue: str = "default",
    name: str = "add",
    key: str | None = None,
) -> None:
    """Insert dead letters with ids from first to last."""
    connection.execute(INSERT, (ago, reason, queue, name, key, first, last))


def test_the_list_has_the_latest_first_and_no_payload(pgtasks: Run, connection: Connection) -> None:
    """With filters that combine."""
    add(connection, 1, 2, ago="2 days")
    add(connection, 3, 3, queue="mails", name="send", reason="permanent")
    listed = pgtasks("dead", "list", "--json").json["dead"]
    assert [letter["id"] for letter in listed] == [3, 2, 1]
    assert "payload" not in listed[0]
    for flags, ids in [
        (["--queue", "mails"], [3]),
        (["--name", "add"], [2, 1]),
        (["--reason", "permanent"], [3]),
        (["--since", "1d"], [3]),
        (["--before-time", "1d"], [2, 1]),
        (["--id", "1", "--id", "3"], [3, 1]),
        (["--queue", "mails", "--reason", "exhausted"], []),
        (["--limit", "1"], [3]),
    ]:
        assert [letter["id"] for letter in pgtasks("dead", "list", "--json", *flags).json["dead"]] == ids, flags
    assert pgtasks("dead", "list", "--queue", "mial").code == 3


def test_show_is_about_dead_letters_alone(pgtasks: Run, connection: Connection) -> None:
    """A living task is not one, and the message says what it is."""
    add(connection, 1, 1)
    assert pgtasks("dead", "show", "1", "--json").json["reason"] == "exhausted"
    connection.execute("INSERT INTO pgtasks.tasks (id, name) OVERRIDING SYSTEM VALUE VALUES (2, 'a')")
    living = pgtasks("dead", "show", "2")
    assert living.code == 3
    assert "it is queued" in living.err


def test_replay_moves_and_gives_fresh_attempts(pgtasks: Run, connection: Connection) -> None:
    """The same id, its payload, priority and age; due now; a second replay finds nothing."""
    add(connection, 1, 3)
    assert pgtasks("dead", "replay").out == "3 replayed\n"
    assert rows(
        connection,
        "SELECT id, attempt, priority, payload, created_at = '2026-01-01', run_at <= clock_timestamp()"
        " FROM pgtasks.tasks ORDER BY id",
    ) == [(id, 0, 3, {"a": 1}, True, True) for id in (1, 2, 3)]
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 0
    assert pgtasks("dead", "replay", "--json").json == {"replayed": 0, "skipped": 0, "skipped_reasons": []}


def test_a_taken_key_is_skipped_with_its_reason(pgtasks: Run, connection: Connection) -> None:
    """Also when two dead letters have the same one: the first is replayed."""
    add(connection, 1, 3, key="k")
    connection.execute("UPDATE pgtasks.dead_letters SET unique_key = 'k1' WHERE id = 3")
    connection.execute("INSERT INTO pgtasks.tasks (id, name, unique_key) OVERRIDING SYSTEM VALUE VALUES (9, 'a', 'k2')")
    assert pgtasks("dead", "replay", "--dry-run", "--json").json["skipped"] == 1
    report = pgtasks("dead", "replay", "--json").json
    assert report["replayed"] == 1
    assert report["skipped_reasons"] == [{"reason": "unique_key_taken", "count": 2, "ids": [2, 3]}]
    assert rows(connection, "SELECT id FROM pgtasks.dead_letters ORDER BY id") == [(2,), (3,)]
    assert "a living task has their unique key" in pgtasks("dead", "replay").out


def test_ids_can_be_arguments_and_missing_ones_are_3(pgtasks: Run, connection: Connection) -> None:
    """What is there is replayed all the same."""
    add(connection, 1, 3)
    ran = pgtasks("dead", "replay", "1", "--id", "2", "77")
    assert ran.code == 3
    assert ran.out == "2 replayed\n1 skipped: no dead letter has such an id (77)\n"
    assert rows(connection, "SELECT id FROM pgtasks.dead_letters") == [(3,)]


def test_a_dry_run_does_nothing(pgtasks: Run, connection: Connection) -> None:
    """And says what would be done."""
    add(connection, 1, 3)
    add(connection, 4, 4, queue="mails", name="send")
    for verb in ("replay", "purge"):
        flags = ["--all"] if verb == "purge" else []
        ran = pgtasks("dead", verb, "--dry-run", *flags)
        assert ran.out.splitlines()[0] == f"4 would be {verb}ed".replace("purgeed", "purged")
        assert "3  add in queue default, exhausted" in ran.out
    limited = pgtasks("dead", "replay", "--dry-run", "--limit", "2", "--json").json
    assert limited == {
        "dry_run": True,
        "replayed": 2,
        "skipped": 0,
        "kinds": [{"queue": "default", "name": "add", "reason": "exhausted", "count": 2}],
    }
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 4


def test_a_limit_takes_the_lowest_ids(pgtasks: Run, connection: Connection) -> None:
    """Over several batches."""
    add(connection, 1, 1300)
    assert pgtasks("dead", "replay", "--limit", "1201", "--json").json["replayed"] == 1201
    assert value(connection, "SELECT min(id) FROM pgtasks.dead_letters") == 1202


def test_purge_asks_first(pgtasks: Run, connection: Connection) -> None:
    """Without a terminal it wants --yes."""
    add(connection, 1, 3)
    refused = pgtasks("dead", "purge", "--queue", "default")
    assert refused.code == 2
    assert "3 dead letters" in refused.err
    assert "--yes" in refused.err
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 3
    assert pgtasks("dead", "purge", "2", "--yes", "--json").json["purged"] == 1
    assert pgtasks("dead", "purge", "--all", "--yes").out == "2 purged\n"


def test_two_operators_replay_each_dead_letter_once(dsn: str, connection: Connection) -> None:
    """R-07: at the same time, while others of the rows are purged and retried one by one."""
    add(connection, 1, 1000)
    go = threading.Barrier(3)

    def replay() -> int:
        go.wait()
        run = subprocess.run(
            [program(), "dead", "replay", "--json"],
            env=environment(dsn, "admin"),
            capture_output=True,
            check=True,
            timeout=15,
        )
        return int(json.loads(run.stdout)["replayed"])

    def meddle() -> int:
        go.wait()
        with psycopg.connect(dsn, autocommit=True) as other:
            gone = sum(
                other.execute("DELETE FROM pgtasks.dead_letters WHERE id = %s", (id,)).rowcount
                for id in range(990, 1000)
            )
            happened = [value(other, "SELECT pgtasks.retry(%s)", id) for id in range(980, 990)]
            return gone + happened.count("replayed")

    with ThreadPoolExecutor(3) as pool:
        meddled = pool.submit(meddle)
        replayed = sum(future.result() for future in [pool.submit(replay), pool.submit(replay)])
        assert replayed + meddled.result() == 1000
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 0
    queued = value(connection, "SELECT count(*) FROM pgtasks.tasks WHERE attempt = 0")
    assert queued >= 990
    assert queued == value(connection, "SELECT count(DISTINCT id) FROM pgtasks.tasks")


def test_a_row_that_somebody_holds_is_passed_over(dsn: str, connection: Connection) -> None:
    """It is theirs: nobody waits, nothing is replayed twice."""
    add(connection, 1, 3)
    with psycopg.connect(dsn) as other, connect(dsn, "cli") as ours:
        other.execute("SELECT FROM pgtasks.dead_letters WHERE id = 2 FOR UPDATE")
        batch = fetch_all(ours, dead_letters.replay(Filters(), after=0, limit=500))[0]
        assert (batch.replayed, batch.taken) == ([1, 3], [])


def test_a_key_taken_at_that_very_moment_keeps_its_dead_letter(dsn: str, connection: Connection) -> None:
    """The replay waits for the other transaction, then leaves the row where it was."""
    add(connection, 1, 1, key="k")
    with psycopg.connect(dsn) as other, connect(dsn, "cli") as ours:
        other.execute("INSERT INTO pgtasks.tasks (name, unique_key) VALUES ('a', 'k1')")
        with ThreadPoolExecutor(1) as pool:
            batch = pool.submit(fetch_all, ours, dead_letters.replay(Filters(), after=0, limit=500))
            wait_until(lambda: value(connection, "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)
            other.commit()
            assert batch.result()[0].taken == [1]
    assert value(connection, "SELECT count(*) FROM pgtasks.dead_letters") == 1


def test_what_dies_again_meanwhile_is_not_replayed_in_a_circle(pgtasks: Run, connection: Connection) -> None:
    """Only what was dead at the start."""
    add(connection, 1, 1)
    add(connection, 2, 2, ago="-1 hour")
    assert pgtasks("dead", "replay", "--json").json["replayed"] == 1
    assert rows(connection, "SELECT id FROM pgtasks.dead_letters") == [(2,)]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_batch_reads_no_more_than_it_takes(fresh_database: str) -> None:
    """Of 200,000 dead letters: the primary key from the last id on, without a sort."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        add(connection, 1, 200_000)
        connection.execute("ANALYZE pgtasks.dead_letters")
        statement = dead_letters.replay(
            Filters(before_time=value(connection, "SELECT now()")), after=150_000, limit=500
        )
        text = psycopg.ClientCursor(connection).mogrify(statement.sql, statement.params)
        plan = "\n".join(line for (line,) in rows(connection, "EXPLAIN (ANALYZE, COSTS OFF) " + text))
    picked = plan[plan.index("CTE picked") : plan.index("CTE added")]
    assert "Index Scan using dead_letters_pkey" in picked
    assert "Sort" not in picked
    assert "Rows Removed" not in picked
