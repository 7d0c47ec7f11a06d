"""Running commands in this process, with what they printed and their exit code."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from pgtasks import cli
from tests.access import as_role, role_of
from tests.database import Connection


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document that it printed."""
        return json.loads(self.out)


Run = Callable[..., Ran]


def hold(connection: Connection, worker_id: str, count: int, name: str = "add") -> None:
    """Let a worker run so many tasks, under one lease that has not ended."""
    connection.execute(
        "WITH lease AS (SELECT nextval(pg_get_serial_sequence('pgtasks.leases', 'id')) AS id),"
        " held AS (INSERT INTO pgtasks.tasks (name, state, lease_id, claimed_at)"
        " SELECT %s, 'running', lease.id, now() FROM lease, generate_series(1, %s) RETURNING id)"
        " INSERT INTO pgtasks.leases (id, worker_id, expires_at, task_ids) OVERRIDING SYSTEM VALUE"
        " SELECT lease.id, %s, now() + interval '1 minute', (SELECT array_agg(held.id) FROM held) FROM lease",
        (name, count, worker_id),
    )


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command that needs no database, or names one itself; it connects as the role that the command needs."""
    monkeypatch.delenv("PGTASKS_DSN", raising=False)

    def run(*argv: str, stdin: str | None = None) -> Ran:
        role = role_of(argv)
        env = {"PGTASKS_DSN": as_role(os.environ["PGTASKS_DSN"], role)} if "PGTASKS_DSN" in os.environ else {}
        result = CliRunner().invoke(cli.app, [as_role(word, role) for word in argv], input=stdin, env=env)
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def pgtasks(offline: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the test database; the worker's variables are gone after the test."""
    monkeypatch.setenv("PGTASKS_DSN", dsn)
    return offline
