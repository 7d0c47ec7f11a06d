"""A database whose schema belongs to a role without any privilege of the server, and a role of each kind."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtasks import schema
from pgtasks.store import granting
from pgtasks.store.session import connect
from tests.database import Connection, Server

OWNER = "pgtasks_test_owner"


@dataclass(frozen=True)
class Roles:
    """How each role connects: ``owner``, and one of each kind; ``admin`` is pgtasks' kind, no superuser."""

    dsns: dict[str, str]

    def __getitem__(self, kind: str) -> str:
        """Return the address for one of them."""
        return self.dsns[kind]

    def name(self, kind: str) -> str:
        """Return the name of one of them."""
        return str(conninfo_to_dict(self.dsns[kind])["user"])


@pytest.fixture(scope="module")
def superuser(server: Server) -> Iterator[Connection]:
    """A superuser's session on a database without our schema, which the owner may fill."""
    address = server.create(migrated=False)
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection
    server.drop(address)


@pytest.fixture(scope="module")
def roles(server: Server, superuser: Connection) -> Iterator[Roles]:
    """The roles, with a schema that the owner migrated and granted, and partitions made after that."""
    address = server.dsn_for(superuser.info.dbname)
    names = {kind: f"pgtasks_test_{kind}" for kind in granting.KINDS} | {"owner": OWNER, "stranger": "pgtasks_test_x"}
    for name in names.values():
        superuser.execute(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE").format(sql.Identifier(name))
        )
    database = sql.Identifier(superuser.info.dbname)
    superuser.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(database, sql.Identifier(OWNER)))
    found = Roles({kind: make_conninfo(address, user=name) for kind, name in names.items()})
    schema.migrate(found["owner"])
    for kind in granting.KINDS:
        with connect(found["owner"], "cli") as connection:
            granting.grant(connection, kind, names[kind])
    with connect(found["worker"], "cli") as connection:
        connection.execute("SELECT pgtasks.create_partitions(9)")
    try:
        yield found
    finally:
        for name in names.values():
            superuser.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
        for name in names.values():
            superuser.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
