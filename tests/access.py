"""Whom the tests connect as: the harness is the superuser, whatever belongs to pgtasks never is.

The addresses that fixtures give are the harness's own. A part of pgtasks that is given one connects as the role
that it has in production instead, one of each kind of docs/roles.md:

- a program, by `tests.workers.environment` and `WorkerProcess`;
- a command in the process of the test, by `tests.cli.conftest`;
- an app or a part of the engine in the process of the test, by `in_process`, which looks at what a connection is for.

`Watch` reads in the server's log whether that is so.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from psycopg import ProgrammingError, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtasks import schema
from pgtasks.cli import rights
from pgtasks.embedded import ROLE
from pgtasks.store import conninfo, granting
from pgtasks.store.session import connect

SUPERUSER = ROLE
Role = Literal["owner", "producer", "worker", "reader", "admin"]
ROLES: dict[Role, str] = {
    "owner": "suite_owner",
    "producer": "suite_producer",
    "worker": "suite_worker",
    "reader": "suite_reader",
    "admin": "suite_admin",
}
# Other roles' long transactions are seen by members of pg_monitor alone (docs/roles.md).
_SEES_OTHERS: tuple[Role, ...] = ("reader", "admin")
# What tests make in `public` stands for the application's own tables, which its handlers may use.
_SHARE_TABLES = (
    b"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO PUBLIC;"
    b"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON SEQUENCES TO PUBLIC"
)
# Every connection says what it is for. Commands have their role before they connect; `cli` is what tests read by.
_OF_PART: dict[conninfo.Part, Role] = {
    "claim": "worker",
    "finish": "worker",
    "heartbeat": "worker",
    "listen": "worker",
    "schedule": "worker",
    "metrics": "reader",
    "client": "producer",
    "migrate": "owner",
    "cli": "admin",
}
# The databases of `tests.database.Server` and of `tests.chaos.Cluster`, which are the ones that have these roles.
CHAOS = "chaos"
_DATABASE = re.compile(rf"test_\d+|{CHAOS}")
_SESSION = re.compile(
    rf"connection authorized: user={SUPERUSER} database=({_DATABASE.pattern}) application_name=(pgtasks/\S*)".encode()
)


def make_roles(connection: psycopg.Connection[Any], password: str | None = None) -> None:
    """Make the roles on a server, as its superuser."""
    for role, name in ROLES.items():
        made = sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER PASSWORD {}")
        connection.execute(made.format(sql.Identifier(name), sql.Literal(password)))
        if role in _SEES_OTHERS:
            connection.execute(sql.SQL("GRANT pg_monitor TO {}").format(sql.Identifier(name)))


def as_role(dsn: str, role: Role) -> str:
    """Give the address as one of the roles, if it is the harness's address of a database that has them."""
    if not _DATABASE.search(dsn):
        return dsn
    try:
        given = conninfo_to_dict(dsn)
    except ProgrammingError:
        return dsn  # what a command says of it is the test
    if given.get("user") != SUPERUSER or not _DATABASE.fullmatch(str(given.get("dbname"))):
        return dsn
    if dsn.startswith(f"postgresql://{SUPERUSER}@"):
        return dsn.replace(f"{SUPERUSER}@", f"{ROLES[role]}@", 1)
    return make_conninfo(dsn, user=ROLES[role])


@contextmanager
def acting(connection: psycopg.Connection[Any], role: Role) -> Iterator[None]:
    """Give a session of the harness, in autocommit mode, the rights of a role for a while."""
    connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(ROLES[role])))
    try:
        yield
    finally:
        connection.execute("RESET ROLE")


def install(dsn: str) -> None:
    """Migrate a database as its owner, give each role its rights, and share what tests make beside the schema."""
    schema.migrate(as_role(dsn, "owner"))
    grant_all(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_SHARE_TABLES)


def grant_all(dsn: str) -> None:
    """Give each role the rights of its kind in a migrated database, as its owner does."""
    with connect(as_role(dsn, "owner"), "migrate") as connection:
        for kind in granting.KINDS:
            granting.grant(connection, kind, ROLES[kind])


def role_of(argv: Sequence[str]) -> Role:
    """Give the role that a command line of pgtasks needs; the owner's where no grant would do."""
    return rights.kind_for(argv) or "owner"


@contextmanager
def in_process() -> Iterator[None]:
    """Let every connection that pgtasks opens in this process be that of the role which its part has."""
    with pytest.MonkeyPatch.context() as patch:
        complete = conninfo.complete

        def as_its_role(dsn: str, part: conninfo.Part, *, worker: str = "", pooler: str = "none") -> str:
            role = _OF_PART.get(part)
            return complete(dsn if role is None else as_role(dsn, role), part, worker=worker, pooler=pooler)

        patch.setattr(conninfo, "complete", as_its_role)
        yield


WATCHES: list["Watch"] = []


class Watch:
    """Finds, in a log with `log_connections`, the sessions of pgtasks that were a superuser's."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0

    def found(self) -> set[str]:
        """Give database and application of those since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        self._read += len(text)
        return {b" ".join(each).decode() for each in _SESSION.findall(text)}
