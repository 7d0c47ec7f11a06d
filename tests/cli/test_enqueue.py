"""`pgtasks enqueue` adds one task and prints its id."""

import subprocess

import pytest

from tests.access import as_role
from tests.cli.conftest import Run
from tests.database import Connection, rows, value
from tests.workers import environment, program

pytestmark = pytest.mark.pg


def test_every_option_reaches_the_row(pgtasks: Run, connection: Connection) -> None:
    """With the units that people write."""
    ran = pgtasks(
        "enqueue", "mail", '{"to": "a@b"}', "--queue", "mails", "--priority", "5", "--delay", "1h30m",
        "--unique-key", "k", "--max-attempts", "7", "--timeout", "90",
    )  # fmt: skip
    assert ran.code == 0, ran
    id = int(ran.out)
    (row,) = rows(
        connection,
        "SELECT id, name, payload, queue, priority, round(extract(epoch FROM run_at - created_at)),"
        " unique_key, max_attempts, extract(epoch FROM timeout)::int FROM pgtasks.tasks",
    )
    assert row == (id, "mail", {"to": "a@b"}, "mails", 5, 5400, "k", 7, 90)


def test_the_payload_can_come_from_standard_input(pgtasks: Run, connection: Connection) -> None:
    """With - in its place."""
    ran = pgtasks("enqueue", "add", "-", stdin='{"a": 1,\n "b": "é\U0001f600"}')
    assert ran.code == 0
    assert value(connection, "SELECT payload FROM pgtasks.tasks") == {"a": 1, "b": "é\U0001f600"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b'{"a": "caf\xe9"}', "not UTF-8 at byte 10: 0xe9"),
        (b'{"a": "' + b"x" * 17_000_000 + b'"}', "the limit is 2,097,152"),
        (b"", "not JSON"),
    ],
    ids=["latin 1", "too large", "empty"],
)
def test_standard_input_that_cannot_be_read_says_why(dsn: str, given: bytes, message: str) -> None:
    """The place of the first wrong byte, or the limit."""
    command = [program(), "enqueue", "add", "-"]
    env = environment(dsn, "producer")
    ran = subprocess.run(command, input=given, env=env, capture_output=True, check=False, timeout=15)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert message in ran.stderr.decode()
    assert "Traceback" not in ran.stderr.decode()


def test_no_payload_is_an_empty_object(pgtasks: Run, connection: Connection) -> None:
    """As in SQL."""
    pgtasks("enqueue", "add")
    assert value(connection, "SELECT payload FROM pgtasks.tasks") == {}


def test_a_run_at_is_kept(pgtasks: Run, connection: Connection) -> None:
    """With its offset from UTC."""
    pgtasks("enqueue", "add", "--run-at", "2027-01-31T09:00:00+01:00")
    assert value(connection, "SELECT run_at = '2027-01-31 08:00:00+00' FROM pgtasks.tasks")


def test_json_says_whether_the_task_is_new(pgtasks: Run) -> None:
    """The second one with a key gets the first one's id."""
    first = pgtasks("enqueue", "add", "--unique-key", "k", "--json").json
    second = pgtasks("enqueue", "add", "--unique-key", "k", "--json").json
    assert first == {"id": first["id"], "created": True}
    assert second == {"id": first["id"], "created": False}


def test_a_taken_key_is_said(pgtasks: Run) -> None:
    """On standard error, so that the id stays alone on standard output."""
    first = pgtasks("enqueue", "add", "--unique-key", "k")
    again = pgtasks("enqueue", "add", "--unique-key", "k")
    assert again.out == first.out
    assert "nothing was added" in again.err
    raised = pgtasks("enqueue", "add", "--unique-key", "k", "--on-conflict", "raise")
    assert (raised.code, raised.out) == (1, "")


def test_a_name_that_no_worker_knows_is_added_with_a_note(offline: Run, dsn: str, connection: Connection) -> None:
    """It may be registered later; it may also be misspelt. A producer may not look that up, an admin may."""
    admin = ("--dsn", as_role(dsn, "admin"))
    connection.execute(
        "INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry) VALUES ('send_mail', 'mails', 3, '{}')"
    )
    ran = offline("enqueue", "send_mial", *admin)
    assert ran.code == 0
    assert int(ran.out)
    assert "did you mean 'send_mail'?" in ran.err
    assert offline("enqueue", "send_mail", *admin).err == ""
    assert rows(connection, "SELECT name, queue FROM pgtasks.tasks ORDER BY id") == [
        ("send_mial", "default"),
        ("send_mail", "mails"),
    ]


def test_a_payload_over_the_cap_is_refused(pgtasks: Run, connection: Connection) -> None:
    """By name and number, with nothing inserted."""
    ran = pgtasks("enqueue", "add", "-", stdin='{"a": "' + "x" * 3_000_000 + '"}')
    assert ran.code == 2
    assert "2,097,152" in ran.err
    assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0
