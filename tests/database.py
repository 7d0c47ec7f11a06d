"""The databases of the tests: one server per test process, one migrated template, clones of it.

Each belongs to a role without privileges, and one role of each kind of docs/roles.md has its grants there
(tests/access.py); the addresses are the superuser's, for the harness.

A server of its own for every process of pytest-xdist needs no coordination, dies with that
process, and lets a test look at cluster-wide numbers without seeing its neighbours'.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from pgtasks.embedded import FAST_OPTIONS, EmbeddedError, PrivateServer, find_binaries
from tests import access

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = 10.0
# Every id of the tests is past what four bytes hold, so that no query survives that narrows one.
FIRST_ID = 3_000_000_000
_TEMPLATE = "test_0"
_numbers = count(1)

Connection = psycopg.Connection[Any]


class Server:
    """A running PostgreSQL server with a template database that holds the current schema."""

    def __init__(self, private: PrivateServer) -> None:
        self.private = private
        self._has_roles = self._has_template = False

    def dsn_for(self, database: str) -> str:
        """Return the address of one of its databases, as superuser."""
        return self.private.dsn_for(database)

    def program(self, name: str) -> str:
        """Return the path of one of the server's client programs; without it, skip the test."""
        path = find_binaries(_bindir()).program(name)
        if not path.exists():
            pytest.skip(f"{path} does not exist")
        return str(path)

    def create(self, *, migrated: bool) -> str:
        """Create a database, with the current schema or with nothing in it, and return its address."""
        if not self._has_roles:
            with psycopg.connect(self.dsn_for("postgres"), autocommit=True) as connection:
                access.make_roles(connection, self._password())
            self._has_roles = True
        if migrated and not self._has_template:
            _migrate(self._create(_TEMPLATE, "template0"))
            self._has_template = True
        return self._create(f"test_{next(_numbers)}", _TEMPLATE if migrated else "template0")

    def drop(self, dsn: str) -> None:
        """Drop a database and disconnect whoever is still in it."""
        name = sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]))
        self._run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def alter(self, dsn: str, change: LiteralString) -> None:
        """Run ALTER DATABASE on one of its databases, for example with ``SET work_mem = '1MB'``."""
        name = sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]))
        self._run(sql.SQL("ALTER DATABASE {} ").format(name) + sql.SQL(change))

    def _password(self) -> str | None:
        """Give the password that all roles have over TCP, if the server listens there."""
        with suppress(EmbeddedError):
            return str(psycopg.conninfo.conninfo_to_dict(self.private.tcp_dsn_for())["password"])
        return None

    def _create(self, name: str, template: str) -> str:
        # Copying files is the fast way as long as nothing waits for the disk.
        statement = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY FILE_COPY")
        owner = sql.Identifier(access.ROLES["owner"])
        self._run(statement.format(sql.Identifier(name), owner, sql.Identifier(template)))
        return self.dsn_for(name)

    def _run(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn_for("postgres"), autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def start_server(**options: str) -> Iterator[Server]:
    """Run the server that PGTASKS_TEST_PG_BINDIR names, or else the embedded one, with some settings of its own."""
    with PrivateServer(bindir=_bindir(), options={**FAST_OPTIONS, "log_connections": "on", **options}) as private:
        yield Server(private)


def prepare(private: PrivateServer) -> str:
    """Give a server of a test's own the roles and one migrated database, and return its address."""
    address = Server(private).create(migrated=False)
    access.install(address)
    return address


def _bindir() -> Path | None:
    named = os.environ.get("PGTASKS_TEST_PG_BINDIR")
    return Path(named) if named else None


def _migrate(dsn: str) -> None:
    access.install(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for table in ("tasks", "leases"):
            connection.execute(f"ALTER SEQUENCE pgtasks.{table}_id_seq RESTART WITH {FIRST_ID}".encode())


def empty(connection: Connection) -> None:
    """Delete every row of the schema's tables, after ending whatever an earlier test left running."""
    rows(
        connection,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )
    tables = rows(
        connection,
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'pgtasks'::regnamespace"
        " AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> 'schema_version'",
    )
    deletes = [sql.SQL("DELETE FROM pgtasks.{}").format(sql.Identifier(name)) for (name,) in tables]
    connection.execute(sql.SQL(";").join(deletes))


def rows(connection: Connection, statement: str, *params: Any) -> list[tuple[Any, ...]]:
    """Run a statement with ``%s`` parameters and return its rows, an empty list if it has none."""
    cursor = connection.execute(statement.encode(), params or None)
    return cursor.fetchall() if cursor.description else []


def value(connection: Connection, statement: str, *params: Any) -> Any:
    """Run a statement and return the one value it gives."""
    ((only,),) = rows(connection, statement, *params)
    return only


def wait_until(
    condition: Callable[[], object],
    timeout_s: float = DEADLINE_S,
    interval_s: float = 0.02,
    *,
    hint: Callable[[], object] | str = "the condition did not come true",
) -> None:
    """Poll until the condition holds; fail with the hint when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            reason = hint() if callable(hint) else hint
            raise AssertionError(f"after {timeout_s:g} s: {reason}")
        time.sleep(interval_s)
