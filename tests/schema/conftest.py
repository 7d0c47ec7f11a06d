"""Fixtures for migrations that do not exist yet, and for roles with odd settings."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgtasks import schema
from tests.database import Server

AddRevision = Callable[[str, str], Path]
MakeOwner = Callable[..., str]

_REVISION = """
from pgtasks.schema import run_sql_beside
revision = "{number}"
down_revision = "{before}"
def upgrade(): run_sql_beside(__file__, "up")
def downgrade(): run_sql_beside(__file__, "down")
"""


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the migrations that this test may change, and that pgtasks.schema uses."""
    copy = tmp_path / "migrations"
    shutil.copytree(schema.folder(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(schema, "folder", lambda: copy)
    return copy


@pytest.fixture
def add_revision(migrations: Path) -> AddRevision:
    """A function that adds the next revision from its SQL up and down, and returns the folder."""

    def add(up: str, down: str) -> Path:
        before = schema.head()
        number = f"{int(before) + 1:04}"
        stem = migrations / "versions" / f"{number}_more"
        stem.with_suffix(".py").write_text(_REVISION.format(number=number, before=before))
        stem.with_suffix(".up.sql").write_text(up)
        stem.with_suffix(".down.sql").write_text(down)
        return migrations

    return add


@pytest.fixture
def make_owner(server: Server, empty_dsn: str) -> Iterator[MakeOwner]:
    """A function that gives the empty database to a new role with settings; returns its address."""
    database = sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(empty_dsn)["dbname"]))
    role = "odd owner"

    def make(**settings: str) -> str:
        with psycopg.connect(empty_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
            connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(database, sql.Identifier(role)))
            for name, value in settings.items():
                statement = sql.SQL("ALTER ROLE {} SET {} = {}")
                connection.execute(statement.format(sql.Identifier(role), sql.Identifier(name), sql.Literal(value)))
        return make_conninfo(empty_dsn, user=role)

    yield make
    server.drop(empty_dsn)
    with psycopg.connect(server.dsn_for("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))
