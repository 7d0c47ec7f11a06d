"""Roles that may do what a worker does, with settings that a database administrator may have made."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg
from psycopg import sql

from pgtasks.store import granting
from tests.database import Connection


@contextmanager
def worker_role(connection: Connection, name: str, settings: Mapping[str, str]) -> Iterator[str]:
    """Make a role with these settings and give the address of the connection's database for it."""
    role = sql.Identifier(name)
    connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(role))
    connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
    try:
        for statement in granting.script("worker", name):
            connection.execute(statement.encode())
        for setting, value in settings.items():
            change = sql.SQL("ALTER ROLE {} SET {} = {}").format(role, sql.Identifier(setting), sql.Literal(value))
            connection.execute(change)
        given = psycopg.conninfo.conninfo_to_dict(connection.info.dsn)
        yield psycopg.conninfo.make_conninfo("", **{**given, "user": name})
    finally:
        connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", [name])
        connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
        connection.execute(sql.SQL("DROP ROLE {}").format(role))
