"""A role that lacks a right is told so, and what the owner of the schema has to run (X-01)."""

import json

import pytest
from psycopg import sql

from pgtasks.cli import rights
from tests.cli.conftest import Run, offline
from tests.database import Connection, rows, value
from tests.roles.conftest import Roles

__all__ = ["offline"]
pytestmark = pytest.mark.pg


@pytest.mark.parametrize("extra", [(), ("--unique-key", "k", "--on-conflict", "replace"), ("--json",)])
def test_a_producer_enqueues_from_a_shell(
    roles: Roles, superuser: Connection, offline: Run, extra: tuple[str, ...]
) -> None:
    """It may see neither the schema's revision nor the registered names, and needs neither."""
    superuser.execute(
        "INSERT INTO pgtasks.task_types (name, queue, max_attempts, retry) VALUES ('known', 'default', 3, '{}')"
    )
    try:
        ran = offline("enqueue", "shell", '{"a": 1}', *extra, "--dsn", roles["producer"])
        assert (ran.code, ran.err) == (0, "")
        task_id = ran.json["id"] if "--json" in extra else int(ran.out)
        assert rows(superuser, "SELECT name, payload FROM pgtasks.tasks WHERE id = %s", task_id) == [
            ("shell", {"a": 1})
        ]
        noted = offline("enqueue", "shell", "--dsn", roles["worker"])
        assert "no worker has registered" in noted.err, "who may look the name up is told as before"
    finally:
        superuser.execute("DELETE FROM pgtasks.tasks WHERE name = 'shell'")
        superuser.execute("DELETE FROM pgtasks.task_types WHERE name = 'known'")


@pytest.mark.parametrize(
    ("command", "role", "kind"),
    [
        (("enqueue", "a"), "reader", "producer"),
        (("enqueue", "a"), "stranger", "producer"),
        (("status",), "producer", "reader"),
        (("tasks", "list"), "producer", "reader"),
        (("tasks", "cancel", "1"), "reader", "admin"),
        (("queues", "pause", "default", "--force"), "worker", "admin"),
        (("dead", "list"), "stranger", "reader"),
        (("--debug", "prune"), "reader", "admin"),
        (("worker", "tests.apps.basic:app"), "producer", "worker"),
        (("scheduler",), "stranger", "worker"),
    ],
)
def test_the_remedy_is_named(roles: Roles, offline: Run, command: tuple[str, ...], role: str, kind: str) -> None:
    """Who may not, what the server said, and the grant that fits the command; in a document as well."""
    name = roles.name(role)
    ran = offline(*command, "--dsn", roles[role])
    assert ran.code == 1, ran
    said = next(line for line in ran.err.splitlines() if line.startswith("error: "))
    assert said.startswith(f"error: role {name} may not do this: permission denied for ")
    assert said.endswith(f" — let the schema's owner run: pgtasks grant {kind} {name} (docs/roles.md)")
    if "--debug" not in command and command[0] not in {"worker", "scheduler"}:
        document = json.loads(offline(*command, "--json", "--dsn", roles[role]).err)
        assert document == {"error": {"message": said.removeprefix("error: "), "exit_code": 1}}


def test_what_only_the_owner_does_names_no_kind(roles: Roles, offline: Run) -> None:
    """No grant of ours lets a role migrate."""
    ran = offline("migrate", "--dsn", roles["stranger"])
    assert (ran.code, "docs/roles.md says which kind of role may" in ran.err) == (1, True), ran.err
    assert "pgtasks grant " not in ran.err


def test_a_role_is_quoted_for_the_shell() -> None:
    """Its name goes into a line that somebody will paste."""
    assert "pgtasks grant reader 'odd name' (" in rights.remedy("reader", "odd name")
    assert "pgtasks grant reader ROLE (" in rights.remedy("reader", None)


@pytest.mark.parametrize("role", ["producer", "stranger"])
def test_doctor_looks_at_the_server_all_the_same(roles: Roles, offline: Run, role: str) -> None:
    """What it may not see is a finding with a remedy, on the screen and in the document."""
    ran = offline("doctor", "--json", "--dsn", roles[role])
    assert (ran.code, ran.err, ran.json["healthy"]) == (1, "", False)
    found = {one["check"]: one for one in ran.json["findings"]}
    assert {"version", "writable", "clock", "connections", "listen"} <= found.keys()
    lacking = found["privileges"]
    assert (lacking["level"], roles.name(role) in lacking["message"]) == ("problem", True)
    assert f"pgtasks grant reader {roles.name(role)} " in lacking["remedy"]
    screen = offline("doctor", "--dsn", roles[role])
    assert screen.code == 1
    assert screen.out.startswith("problem ")
    assert f"pgtasks grant reader {roles.name(role)} " in " ".join(screen.out.split())


def test_doctor_keeps_what_it_saw_before(roles: Roles, superuser: Connection, offline: Run) -> None:
    """A role that may read the revision and not the rest, as after an upgrade without a new grant."""
    role = sql.Identifier(roles.name("reader"))
    superuser.execute(sql.SQL("REVOKE SELECT ON pgtasks.attempts FROM {}").format(role))
    try:
        ran = offline("doctor", "--json", "--dsn", roles["reader"])
        levels = {one["check"]: one["level"] for one in ran.json["findings"]}
        assert (ran.code, levels["schema"], levels["privileges"]) == (1, "ok", "problem")
    finally:
        superuser.execute(sql.SQL("GRANT SELECT ON pgtasks.attempts TO {}").format(role))
    assert value(superuser, "SELECT has_table_privilege(%s, 'pgtasks.attempts', 'SELECT')", roles.name("reader"))
