"""P-02, P-03: what plain SQL can put into the queue is refused by name, or fails alone."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtasks.payload import PAYLOAD_BYTES_MAX
from tests.database import rows, value, wait_until
from tests.handlers.conftest import Tasks

REFUSED: list[tuple[str, str]] = [
    ("payload = NULL", 'null value in column "payload"'),
    ("queue = NULL", 'null value in column "queue"'),
    ("run_at = NULL", 'null value in column "run_at"'),
    ("name = ''", "name_has_1_to_200_characters"),
    ("name = E'a\\nb'", "name_has_no_control_characters"),
    ("name = repeat('n', 300)", "name_has_1_to_200_characters"),
    ("state = 'running'", "running_means_leased"),
    ("state = 'done'", "state_is_queued_or_running"),
    ("attempt = -1", "attempt_is_not_negative"),
    ("priority = 2147483648", "smallint out of range"),
    ("priority = -32769", "smallint out of range"),
    ("max_attempts = 0", "max_attempts_is_at_least_1"),
    ("timeout = '-1 s'", "timeout_is_positive_and_at_most_1_year"),
    ("payload = jsonb_build_object('a', repeat('x', 3000000))", "payload_is_at_most_2_mib"),
    ("payload = '[]'", "payload_is_an_object"),
    ("payload = 'null'", "payload_is_an_object"),
    ("headers = to_jsonb(repeat('x', 70000))", "headers_are_at_most_64_kib"),
]

# Payloads the table takes and the handler does not; the error says why.
FAILING: list[tuple[str, str]] = [
    ('{"seconds": 1, "class": 2, "self": 3}', "unknown class, self"),
    ('{"seconds": 1, "context": 5}', "unknown context"),
    ("{}", "missing seconds"),
    ('{"Seconds": 1}', "missing seconds; unknown Seconds"),
    ('{"seconds": "many"}', ""),
]
UNREADABLE = [
    ('{"n": ' + "9" * 5000 + "}", "payload cannot be read by Python: ValueError"),
    ('{"n": ' + "[" * 5000 + "]" * 5000 + "}", "payload cannot be read by Python: RecursionError"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_the_table_refuses_nonsense_by_name(tasks: Tasks, change: str, message: str) -> None:
    """P-02: a CHECK whose name is the message."""
    column, sql = change.split(" = ", 1)
    given = {"name": "'nothing'", column: sql}
    statement = f"INSERT INTO pgtasks.tasks ({', '.join(given)}) VALUES ({', '.join(given.values())})"
    with pytest.raises(psycopg.Error, match=message):
        tasks.connection.execute(statement.encode())


def test_a_payload_that_does_not_fit_fails_alone(tasks: Tasks) -> None:
    """P-02: a readable error, the attempts of its policy, and its batch mates are done."""
    added: list[tuple[int, str, str]] = []
    insert = "INSERT INTO pgtasks.tasks (name, payload, max_attempts) VALUES ('holds', %s, 1) RETURNING id"
    for payload, message in FAILING:
        added.append((value(tasks.connection, insert, payload), message, "exhausted"))
        tasks.add("fine")
    for payload, message in UNREADABLE:
        added.append((value(tasks.connection, insert, payload), message, "permanent"))
        tasks.add("fine")
    with tasks.worker() as worker:
        wait_until(lambda: not tasks.left(), hint=worker.output)
        tasks.wait_status(tasks.add("fine"), "completed", timeout_s=2)
        assert worker.running
        assert "999999" not in worker.output()
    for task_id, message, reason in added:
        assert tasks.dead(task_id)[0] == reason
        assert message in tasks.dead(task_id)[2]
    done = "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'"
    assert value(tasks.connection, done) == len(added) + 1


def test_odd_headers_and_names_do_not_stop_a_worker(tasks: Tasks) -> None:
    """P-02: headers that are no object count as none; an unknown name is left for others."""
    odd: dict[str, Any] = {"headers": json.dumps([1, 2])}
    first = tasks.add("fine", **odd)
    unread = tasks.add("fine", headers='{"n": ' + "9" * 5000 + "}")
    unknown = tasks.add('nobody knows "this" 😀')
    tasks.drain(until_empty=False)
    assert tasks.status(first) == "completed"
    assert tasks.dead(unread)[2].startswith("headers cannot be read by Python")
    assert rows(tasks.connection, "SELECT id, attempt FROM pgtasks.tasks") == [(unknown, 0)]


def resident_mb(pid: int) -> float:
    """The memory a process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_large_payloads_take_bounded_memory(tasks: Tasks) -> None:
    """P-03: twenty payloads at the size cap, four at once: a claim brings no more than can start."""
    text = "x" * (PAYLOAD_BYTES_MAX - 100)
    with tasks.worker("--concurrency", "4", "-q", "default", "-q", "later") as worker:
        worker.wait_ready()
        tasks.wait_status(tasks.add("fine"), "completed")
        before_mb = resident_mb(worker.pid)
        insert = "INSERT INTO pgtasks.tasks (name, payload) SELECT 'fine', %s::jsonb FROM generate_series(1, 20)"
        tasks.connection.execute(insert, [json.dumps({"word": text})])
        peak_mb = 0.0

        def done() -> bool:
            nonlocal peak_mb
            peak_mb = max(peak_mb, resident_mb(worker.pid))
            return not tasks.left_count()

        wait_until(done, 15, interval_s=0.005, hint=worker.output)
        # Row, JSON text, value, result and statement of four at a time, and the last batch's.
        assert peak_mb - before_mb < 200
    assert value(tasks.connection, "SELECT count(*) FROM pgtasks.history WHERE status = 'completed'") == 21
