"""The only I/O with PostgreSQL: a statement is described once and run sync or async.

A ``Statement`` is built by a pure function (``statements.py`` and its neighbours); the four
functions here are the only places that run one. What psycopg raises leaves this floor as one
of our own errors, with the server's message and without any password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast

import psycopg
from psycopg import errors as pg
from psycopg.rows import BaseRowFactory, RowMaker, args_row

from pgtasks.errors import ConfigError, DatabaseError, DatabaseUnavailable, SchemaMissing
from pgtasks.store import conninfo
from pgtasks.store.bounded import BoundedAsyncConnection, BoundedConnection

R = TypeVar("R")
SyncConnection: TypeAlias = psycopg.Connection[Any]
AsyncConnection: TypeAlias = psycopg.AsyncConnection[Any]

# After how many runs psycopg prepares a statement; the hot ones get there at once.
_PREPARE_AFTER = 2

# Conditions that pass: the same statement may work on a new connection, or a moment later.
_PASSING = (
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.CannotConnectNow,
    pg.DatabaseDropped,
    pg.IdleSessionTimeout,
    pg.QueryCanceled,
    pg.ReadOnlySqlTransaction,
    pg.IdleInTransactionSessionTimeout,
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.LockNotAvailable,
    pg.InsufficientResources,
    pg.ConnectionException,
    pg.SystemError,
)
# SQLSTATE classes. Rows that were refused: for their values (data, constraints, limits), or by
# users' code on our tables (what triggers raise, and what they run into); and conditions of one
# statement (rolled back, lock not available). After all of them the connection is as good as before.
_ABOUT_VALUES = ("22", "54")
_ABOUT_DATA = (*_ABOUT_VALUES, "09", "21", "23", "2F", "38", "39", "44", "HV", "P0")
_ABOUT_STATEMENT = (*_ABOUT_DATA, "40", "55")
# Conditions of a server, a session, a role or a schema, which concern all rows alike.
_ABOUT_SERVER = ("08", "0A", "25", "26", "28", "3D", "3F", "42", "53", "57", "F0")
_OUT_OF_MEMORY = "53200"
_INSUFFICIENT_PRIVILEGE = "42501"
# Read-only, shut down, crashed, not accepting connections.
_WRONG_SERVER = {"25006", "57P01", "57P02", "57P03"}
_NOT_NULL, _CHECK = "23502", "23514"
QUERY_CANCELED = "57014"
# How a server begins that starts or ends, and takes no connection yet or any more (57P01 to 57P03). Only its text
# says so: a connection that was not made has no SQLSTATE.
_COMES_AND_GOES = ("FATAL:  the database system is ", "FATAL:  terminating connection ")
_UNANSWERED = "check that PostgreSQL runs there, and the connection string (PGTASKS_DSN, --dsn or App(dsn=…))"
_REFUSED = (
    "the server answered: check user, password and database in the connection string (PGTASKS_DSN, --dsn or App(dsn=…))"
)
_OPTIONS_REFUSED = "unsupported startup parameter"
_POOLER_FIX = (
    "that is PgBouncer: set PGTASKS_POOLER=transaction (--pooler, App(pooler=…)), or if it pools sessions, "
    "add options to its ignore_startup_parameters"
)
_NO_SCHEMA = (pg.UndefinedTable, pg.InvalidSchemaName, pg.UndefinedFunction, pg.UndefinedColumn)


def as_tuple(*values: Any) -> Any:
    """Read a row as the plain tuple of its values."""
    return values


@dataclass(frozen=True, slots=True)
class Statement(Generic[R]):
    """One SQL statement with its parameters and the type its rows are read into."""

    sql: str
    params: Mapping[str, Any] = field(default_factory=dict)
    row: Callable[..., R] = as_tuple


def connect(
    dsn: str,
    part: conninfo.Part,
    *,
    worker: str = "",
    pooler: str = "none",
    patient: bool = False,
) -> SyncConnection:
    """Open a connection in autocommit mode; raises DatabaseUnavailable or ConfigError.

    A patient one waits for an answer for as long as it takes.
    """
    text = conninfo.complete(dsn, part, worker=worker, pooler=pooler)
    try:
        with translated(dsn):
            connection = BoundedConnection.connect(text, autocommit=True)
    except DatabaseUnavailable as error:
        # Only here: a worker that runs, and connects anew, waits until its service file is back.
        wrong = conninfo.misuse(str(error.__cause__))
        if wrong is None:
            raise
        raise ConfigError(f"the connection string, or a PG… variable beside it, cannot be used: {wrong}") from error
    _prepare_for(connection, pooler)
    if patient:
        connection.deadline_s = None
    return connection


async def aconnect(dsn: str, part: conninfo.Part, *, worker: str = "", pooler: str = "none") -> AsyncConnection:
    """Open a connection in autocommit mode; raises DatabaseUnavailable or ConfigError."""
    text = conninfo.complete(dsn, part, worker=worker, pooler=pooler)
    with translated(dsn):
        connection = await BoundedAsyncConnection.connect(text, autocommit=True)
    _prepare_for(connection, pooler)
    return connection


def _prepare_for(connection: SyncConnection | AsyncConnection, pooler: str) -> None:
    connection.prepare_threshold = _PREPARE_AFTER if pooler == "none" else None


def _rows_of(row: Callable[..., R]) -> BaseRowFactory[R]:
    """Give psycopg's way of making these rows.

    A named tuple with a field for each column is made without running any code of Python's: for
    a claimed batch that is a tenth of what reading it takes.
    """
    fields = getattr(row, "_fields", ())

    def made_by(cursor: Any) -> RowMaker[R]:
        result = cursor.pgresult
        if fields and result is not None and result.nfields == len(fields):
            return partial(tuple.__new__, cast("type[Any]", row))
        return args_row(row)(cursor)

    return made_by


def fetch_all(connection: SyncConnection, statement: Statement[R]) -> list[R]:
    """Run a statement and read all its rows; an empty list when it returns none."""
    with translated(connection=connection), psycopg.Cursor(connection, row_factory=_rows_of(statement.row)) as cursor:
        cursor.execute(statement.sql, statement.params, binary=True)
        return cursor.fetchall() if cursor.description else []


async def afetch_all(connection: AsyncConnection, statement: Statement[R]) -> list[R]:
    """Run a statement and read all its rows; an empty list when it returns none."""
    with translated(connection=connection):
        async with psycopg.AsyncCursor(connection, row_factory=_rows_of(statement.row)) as cursor:
            await cursor.execute(statement.sql, statement.params, binary=True)
            return await cursor.fetchall() if cursor.description else []


def fetch_one(connection: SyncConnection, statement: Statement[R]) -> R | None:
    """Run a statement and read its first row, None without one."""
    rows = fetch_all(connection, statement)
    return rows[0] if rows else None


async def afetch_one(connection: AsyncConnection, statement: Statement[R]) -> R | None:
    """Run a statement and read its first row, None without one."""
    rows = await afetch_all(connection, statement)
    return rows[0] if rows else None


@contextmanager
def index_order(connection: SyncConnection) -> Iterator[None]:
    """Have the block's statements take rows in the order of an index, and never sort.

    Without statistics, or with old ones, the planner thinks that a queue has few rows, and would
    read a million of them to sort out the first hundred. In a transaction of its own, since a
    transaction pooler knows no other scope.
    """
    with translated(), connection.transaction():
        fetch_all(connection, Statement("SELECT set_config('enable_sort', 'off', true)"))
        yield


@contextmanager
def translated(dsn: str = "", *, connection: SyncConnection | AsyncConnection | None = None) -> Iterator[None]:
    """Turn what psycopg raises into our own errors; with the connection, one about rights says whose."""
    try:
        yield
    except psycopg.Error as error:
        ours = translate(error, dsn)
        if isinstance(ours, DatabaseError) and is_about_rights(ours) and connection and not connection.closed:
            ours.role = connection.info.user
        raise ours from error
    except UnicodeEncodeError as error:
        raise DatabaseError(f"a text cannot be stored: {error}") from error


def translate(error: psycopg.Error, dsn: str = "") -> Exception:
    """Give our own error for one of psycopg's."""
    message = conninfo.without_secrets(str(error).strip(), dsn)
    state = error.sqlstate
    if isinstance(error, _NO_SCHEMA) and "pgtasks." in message:
        return SchemaMissing(f"{message.splitlines()[0]}; run: pgtasks migrate")
    if isinstance(error, pg.InvalidSchemaName):
        return SchemaMissing("the database has no pgtasks schema; run: pgtasks migrate")
    if isinstance(error, _PASSING) or (state is None and isinstance(error, psycopg.OperationalError)):
        return DatabaseUnavailable(_with_fix(message, state, is_connecting=bool(dsn)), sqlstate=state)
    if isinstance(error, psycopg.InterfaceError):
        return DatabaseUnavailable(_with_fix(message, state, is_connecting=bool(dsn)), sqlstate=state)
    return DatabaseError(message, sqlstate=state)


def _with_fix(message: str, state: str | None, *, is_connecting: bool) -> str:
    """Give the first line of what the server or libpq says, and what to do about it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no answer"]
    # Where several addresses were tried, each has its own line.
    attempts = list(dict.fromkeys(line.removeprefix("- ") for line in lines if line.startswith("- host:")))
    brief = "; ".join(attempts) or lines[0]
    if state == pg.ReadOnlySqlTransaction.sqlstate:
        return f"{brief} — connect to the primary, if default_transaction_read_only is not on for the role or database"
    if _OPTIONS_REFUSED in brief:
        return f"{brief} — {_POOLER_FIX}"
    if state is not None or not is_connecting or any(text in message for text in _COMES_AND_GOES):
        return f"{brief} — try again"
    return f"{brief} — {_REFUSED if 'FATAL:' in message else _UNANSWERED}"


def is_about_data(error: DatabaseError) -> bool:
    """Tell whether some row was refused: another batch may well go in."""
    return is_about_values(error) or (error.sqlstate or "")[:2] in _ABOUT_DATA


def is_about_values(error: DatabaseError) -> bool:
    """Tell whether a row was refused for what it says: it may go in with other values."""
    if error.sqlstate is None:
        # Refused on this side of the connection, as a NUL in a text is.
        return not isinstance(error, DatabaseUnavailable)
    return error.sqlstate[:2] in _ABOUT_VALUES or error.sqlstate in {_NOT_NULL, _CHECK}


def is_about_server(error: DatabaseError) -> bool:
    """Tell whether the error concerns all rows alike: no smaller batch would go in."""
    if error.sqlstate is None:
        return isinstance(error, DatabaseUnavailable)
    return error.sqlstate not in {QUERY_CANCELED, _OUT_OF_MEMORY} and error.sqlstate[:2] in _ABOUT_SERVER


def is_about_route(error: DatabaseError) -> bool:
    """Tell whether an open connection broke or leads to a server that does not serve: read-only, ending, starting."""
    if error.sqlstate is None:
        return isinstance(error, DatabaseUnavailable)
    return error.sqlstate in _WRONG_SERVER or error.sqlstate[:2] == "08"


def is_about_time(error: DatabaseError) -> bool:
    """Tell whether the statement waited for too long: for a lock, or past a time limit."""
    return error.sqlstate in {QUERY_CANCELED, "55P03"}


def is_about_statement(error: DatabaseError) -> bool:
    """Tell whether the statement failed and not its connection, which may be used again.

    Everything else (a read-only server, a lost right, a statement that was forgotten by a
    pooler) may be cured by a new connection and is never made worse by one.
    """
    state = error.sqlstate or ""
    return is_about_data(error) or state[:2] in _ABOUT_STATEMENT or state == QUERY_CANCELED


def is_about_rights(error: DatabaseError) -> bool:
    """Tell whether the current role was not allowed to do what it asked for."""
    return error.sqlstate == _INSUFFICIENT_PRIVILEGE


def constraint_of(error: DatabaseError) -> str | None:
    """Name the CHECK or unique constraint that refused a row, if one did."""
    cause = error.__cause__
    return cause.diag.constraint_name if isinstance(cause, psycopg.Error) else None


def is_async(connection: object) -> bool:
    """Tell whether a caller's connection is an async one; raises TypeError for anything else."""
    if isinstance(connection, psycopg.AsyncConnection):
        return True
    if isinstance(connection, psycopg.Connection):
        return False
    raise TypeError(f"connection must be a psycopg connection, got {type(connection).__name__}")
