"""The fixtures themselves: a dirty database is clean for the next test."""

import psycopg
import pytest

from tests.database import FIRST_ID, Connection, rows, value


@pytest.mark.parametrize("turn", [1, 2])
def test_every_test_starts_with_empty_tables(dsn: str, connection: Connection, turn: int) -> None:
    """Both turns insert, and both find nothing but their own row, with a large id."""
    value(connection, "SELECT pgtasks.enqueue('add', '{}', queue => %s)", f"turn {turn}")
    assert rows(connection, "SELECT queue FROM pgtasks.tasks") == [(f"turn {turn}",)]
    assert value(connection, "SELECT id FROM pgtasks.tasks") >= FIRST_ID


@pytest.mark.parametrize("turn", [1, 2])
def test_a_transaction_that_was_left_open_does_not_block_the_next_test(dsn: str, turn: int) -> None:
    """Its connection is ended before the tables are emptied."""
    leaked = psycopg.connect(dsn)
    leaked.execute("LOCK TABLE pgtasks.tasks")
    _LEAKED.append(leaked)
    if turn == 2:
        for each in _LEAKED:
            each.close()


_LEAKED: list[Connection] = []


def test_an_empty_database_has_no_schema(empty_dsn: str) -> None:
    """Migrations start from nothing."""
    with psycopg.connect(empty_dsn) as connection:
        assert value(connection, "SELECT to_regnamespace('pgtasks')") is None


def test_a_fresh_database_is_its_own(fresh_database: str, dsn: str) -> None:
    """It has the schema, and is not the shared one."""
    assert fresh_database != dsn
    with psycopg.connect(fresh_database) as connection:
        assert value(connection, "SELECT count(*) FROM pgtasks.tasks") == 0


async def test_async_connections_see_the_same_database(aconnection: "psycopg.AsyncConnection[object]") -> None:
    """Both kinds lead to the emptied database."""
    cursor = await aconnection.execute("SELECT count(*) FROM pgtasks.tasks")
    assert await cursor.fetchone() == (0,)
