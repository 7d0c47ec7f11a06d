"""An admin may do everything that `pgtasks schedules` does, a reader may look, and nobody else needs more."""

import pytest

from tests.cli.conftest import Run, offline
from tests.database import Connection, rows
from tests.roles.conftest import Roles

__all__ = ["offline"]
pytestmark = pytest.mark.pg

WRITES = [
    ("add", "a", "@hourly", "echo"),
    ("edit", "a", "--missed", "all"),
    ("pause", "a"),
    ("resume", "a"),
    ("run", "a"),
    ("backfill", "a", "--from", "3h"),
    ("backfill", "a", "--from", "5h", "--also-missed"),
    ("prune", "shop", "--gone"),
    ("remove", "a"),
]
READS = [("list",), ("show", "a"), ("next", "a"), ("history", "a"), ("backfill", "a", "--from", "3h", "--dry-run")]
OF_CODE = (
    "INSERT INTO pgtasks.schedules (name, expression, task, source, deployment)"
    " VALUES ('c', '@daily', 't', 'code', 'shop')"
)


def test_what_a_role_may_do_with_schedules(roles: Roles, superuser: Connection, offline: Run) -> None:
    """What is refused says so, changes nothing and is no crash."""
    rows(superuser, "DELETE FROM pgtasks.schedules")
    rows(superuser, OF_CODE)
    state = "SELECT s.*, (SELECT count(*) FROM pgtasks.schedule_fires) FROM pgtasks.schedules AS s ORDER BY name"
    for command in WRITES:
        before = rows(superuser, state)
        ran = offline("schedules", *command, "--dsn", roles["reader"])
        assert (ran.code, "permission denied" in ran.err) == (1, True), (command, ran)
        assert rows(superuser, state) == before
        assert offline("schedules", *command, "--dsn", roles["admin"]).code == 0, command
        if command[0] == "add":
            for reading in READS:
                assert offline("schedules", *reading, "--dsn", roles["reader"]).code == 0, reading
    assert rows(superuser, "SELECT name FROM pgtasks.schedules") == []
