"""`pgtasks queues`: known queues are paused and resumed, misspelt ones are not."""

import pytest

from tests.cli.conftest import Run
from tests.database import Connection, rows

pytestmark = pytest.mark.pg


def test_pause_and_resume(pgtasks: Run, connection: Connection) -> None:
    """Each says whether it changed anything."""
    connection.execute("INSERT INTO pgtasks.tasks (name, queue) VALUES ('a', 'mails')")
    assert pgtasks("queues", "pause", "mails").out == "queue mails is paused; running tasks go on\n"
    assert pgtasks("queues", "pause", "mails", "--json").json == {"queue": "mails", "paused": True, "changed": False}
    (listed,) = pgtasks("queues", "list", "--json").json["queues"]
    assert listed["paused_at"].endswith("Z")
    assert "paused for" in pgtasks("queues", "list").out
    assert pgtasks("queues", "resume", "mails", "--json").json == {"queue": "mails", "paused": False, "changed": True}
    assert pgtasks("queues", "resume", "mails").out == "queue mails was not paused\n"


def test_a_queue_that_nobody_knows_is_3(pgtasks: Run, connection: Connection) -> None:
    """Unless --force says that it is to come."""
    connection.execute("INSERT INTO pgtasks.tasks (name, queue) VALUES ('a', 'mails')")
    refused = pgtasks("queues", "pause", "mial")
    assert refused.code == 3
    assert "did you mean 'mails'?" in refused.err
    assert rows(connection, "SELECT name FROM pgtasks.queues") == []
    assert pgtasks("queues", "pause", "mial", "--force").code == 0
    assert pgtasks("queues", "resume", "mial").code == 0


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO pgtasks.queues (name) VALUES ('q')",
        "INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry) VALUES ('a', 'q', 1, '{}')",
        (
            "INSERT INTO pgtasks.workers (id, name, queues, names, slots, lease_s, version)"
            " VALUES (gen_random_uuid(), 'w', '{q}', '{}', 1, 30, '1')"
        ),
        (
            "INSERT INTO pgtasks.dead_letters (id, created_at, run_at, attempt, priority, reason, queue, name, payload)"
            " VALUES (1, now(), now(), 1, 0, 'permanent', 'q', 'a', '{}')"
        ),
    ],
    ids=["settings", "handlers", "worker", "dead"],
)
def test_a_queue_is_known_by_any_trace_of_it(pgtasks: Run, connection: Connection, statement: str) -> None:
    """Its settings, a handler, a live worker, a dead letter."""
    connection.execute(statement.encode())
    assert pgtasks("queues", "pause", "q").code == 0
    assert [queue["queue"] for queue in pgtasks("queues", "list", "--json").json["queues"]] == ["q"]
