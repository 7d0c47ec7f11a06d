"""The fixtures that every test may ask for; tests/database.py has what they are made of."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from tests import access, database
from tests.apps.basic import RUNS
from tests.database import Connection, Server


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_this_machine() -> None:
    """Keep a DSN or a server of the person who runs the tests out of them."""
    for name in list(os.environ):
        if name.startswith("PG") and name not in {"PGTASKS_TEST_PG_BINDIR", "PGTASKS_UPDATE_SNAPSHOT"}:
            del os.environ[name]
    # What a person's terminal, or the test runner, says about width and colour.
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session", autouse=True)
def _roles_of_production() -> Iterator[None]:
    """Let every connection of pgtasks in this process be that of the role which it has in production."""
    with access.in_process():
        yield


@pytest.fixture(autouse=True)
def _own_variables() -> Iterator[None]:
    """Give back the variables that a command set in this process, as workers do for their handlers."""
    before = {name: value for name, value in os.environ.items() if name.startswith("PGTASKS_")}
    yield
    for name in [name for name in os.environ if name.startswith("PGTASKS_") and name not in before]:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def server(_no_settings_of_this_machine: None) -> Iterator[Server]:
    """The PostgreSQL server of this test process, started when the first test asks for it."""
    with database.start_server() as running:
        access.WATCHES.append(access.Watch(running.private.log_path))
        yield running


@pytest.fixture(autouse=True)
def _no_superuser() -> Iterator[None]:
    """Fail the test in which anything of pgtasks had a session as superuser on the tests' server."""
    yield
    for watch in access.WATCHES:
        assert not watch.found(), "pgtasks connected as superuser: give it an address by tests.access.as_role"


@pytest.fixture(scope="session")
def _clone(server: Server) -> str:
    return server.create(migrated=True)


@pytest.fixture
def dsn(_clone: str) -> str:
    """The address of a migrated database that is emptied before each test."""
    with psycopg.connect(_clone, autocommit=True) as connection:
        database.empty(connection)
    return _clone


@pytest.fixture
def fresh_database(server: Server) -> Iterator[str]:
    """The address of a migrated database that no other test ever sees."""
    address = server.create(migrated=True)
    yield address
    server.drop(address)


@pytest.fixture
def empty_dsn(server: Server) -> Iterator[str]:
    """The address of a new database without our schema."""
    address = server.create(migrated=False)
    yield address
    server.drop(address)


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    """A connection to ``dsn`` in autocommit mode."""
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.fixture
async def aconnection(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """An async connection to ``dsn`` in autocommit mode."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.fixture
def runs(connection: Connection) -> Connection:
    """The connection, with the empty side table that the handler `record` writes to."""
    connection.execute(RUNS)
    connection.execute("TRUNCATE public.runs")
    return connection
