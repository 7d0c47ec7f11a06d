"""Makes the ``pgtasks`` schema what this version needs, and says what it is.

Migrations are plain SQL files that alembic runs from code, each in one transaction::

    lock       one migrator per database; the others poll, and then find nothing to do
    prologue   migrations/prologue.sql: timeouts, search_path, the schema itself
    revision   versions/NNNN_name.up.sql, verbatim, and its number in pgtasks.schema_version
    commit     or nothing of it, whoever is killed when

A statement that waits for a table makes everybody after it wait as well. So ``lock_timeout`` is
short, and the migration is tried again until whoever is in the way has gone; meanwhile a second
connection looks for who that is.

``check`` and ``require`` are what every worker asks at its start; they load no alembic.
"""

from __future__ import annotations

import io
import random
import re
import time
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, assert_never

from pgtasks.errors import (
    ConfigError,
    DatabaseError,
    DatabaseUnavailable,
    SchemaError,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
)
from pgtasks.store import migrating, session, statements
from pgtasks.store.migrating import Progress
from pgtasks.store.session import SyncConnection

Verdict = Literal["current", "missing", "outdated", "too new", "unknown", "unversioned"]

VERSION_SCHEMA = "pgtasks"
VERSION_TABLE = "schema_version"
BASE = ""
SERVER_VERSION_LEAST = 150000
# Another migrator may be in the middle of a long index build.
MIGRATOR_WAIT_S = 600.0
# How long a migration is tried again while somebody holds a lock on what it changes.
LOCK_WAIT_S = 60.0
_RETRY_S_MAX = 5.0
_PARTITION_DAYS_AHEAD = 3
_GIVE_REVISION = (
    "If its tables are those of revision {needed}{made}, run this SQL: "
    "CREATE TABLE IF NOT EXISTS pgtasks.schema_version "
    "(version_num varchar(32) NOT NULL CONSTRAINT schema_version_pkc PRIMARY KEY); "
    "DELETE FROM pgtasks.schema_version; "
    "INSERT INTO pgtasks.schema_version VALUES ('{needed}'); "
    "otherwise this, which deletes every task: DROP SCHEMA pgtasks CASCADE; and then run: pgtasks migrate"
)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What schema a database has: its revision ("" for none), and the one that this version needs.

    ``release`` is the pgtasks version that migrated a schema which this one cannot place.
    ``has_tables`` tells a schema without a revision from none at all.
    """

    revision: str
    needed: str
    server_version: int
    read_only: bool
    release: str | None = None
    has_tables: bool = False

    @property
    def verdict(self) -> Verdict:
        """Whether this version can work with it."""
        if self.revision == self.needed:
            return "current"
        if self.revision == BASE:
            return "unversioned" if self.has_tables else "missing"
        if self.revision in revisions():
            return "outdated"
        return "too new" if re.fullmatch(r"[0-9]{4}", self.revision) and self.revision > self.needed else "unknown"


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did: the revisions it applied, none if there was nothing to do."""

    applied: tuple[str, ...]
    revision: str


# --- The revisions that this version brings ---


def folder() -> Path:
    """Give the folder with env.py and versions/: the wheel's, or that of the checkout.

    An editable installation leaves a copy in site-packages, which is not beside the package's
    own files and therefore never found.
    """
    package = Path(__file__).parent
    packaged = package / "migrations"
    return packaged if packaged.is_dir() else package.parent / "migrations"


def revisions() -> dict[str, str]:
    """Give the numbers of all revisions, oldest first, with their names."""
    files = sorted((folder() / "versions").glob("[0-9]*_*.up.sql"))
    pairs = (file.name.removesuffix(".up.sql").split("_", maxsplit=1) for file in files)
    return {number: name.replace("_", " ") for number, name in pairs}


def head() -> str:
    """Give the revision that this version needs."""
    return max(revisions())


def _resolve(target: str) -> str:
    if target == "head":
        return head()
    if target not in revisions():
        raise ConfigError(f"there is no revision {target!r}; there are: {', '.join(revisions())}")
    return target


def _after(revision: str, target: str) -> list[str]:
    return [number for number in revisions() if revision < number <= target]


# --- What a database has ---


def check(dsn: str, *, pooler: str = "none") -> SchemaState:
    """Say what schema a database has; raises DatabaseUnavailable or ConfigError."""
    connection = session.connect(dsn, "migrate", pooler=pooler)
    with connection:
        return read(connection)


def read(connection: SyncConnection) -> SchemaState:
    """Say what schema the database of a connection has."""
    has_version, server_version, read_only, has_tables = session.fetch_all(connection, statements.schema_state())[0]
    found = session.fetch_all(connection, statements.schema_revision()) if has_version else []
    # A row that says nothing is as wrong as tables without a row: alembic stumbles over it.
    has_tables = has_tables or BASE in found
    state = SchemaState((found or [BASE])[0], head(), server_version, read_only, has_tables=has_tables)
    if not has_version or state.verdict in {"current", "missing", "outdated"}:
        return state
    (release,) = session.fetch_all(connection, migrating.release())[0]
    return replace(state, release=release)


def require(state: SchemaState) -> None:
    """Refuse to work with a schema or server that is not right, saying exactly what to do.

    Raises SchemaMissing, SchemaOutdated, SchemaTooNew, SchemaError for one that cannot be placed,
    or DatabaseError for an old server.
    """
    _require_server(state)
    match state.verdict:
        case "current":
            return
        case "missing":
            raise SchemaMissing("the database has no pgtasks schema yet; run: pgtasks migrate")
        case "outdated":
            raise SchemaOutdated(
                f"the pgtasks schema is at {state.revision}, and this version ({_version()}) needs "
                f"{state.needed}; run: pgtasks migrate"
            )
        case "too new":
            raise _too_new(state)
        case "unknown" | "unversioned":
            raise _unplaced(state)
        case _:
            assert_never(state.verdict)


def _too_new(state: SchemaState) -> SchemaTooNew:
    named = state.release and state.release != _version()
    release = f"at least {state.release}" if named else "the version that migrated it"
    return SchemaTooNew(
        f"the pgtasks schema is at {state.revision}, and this version ({_version()}) knows it only up to "
        f"{state.needed}; upgrade pgtasks to {release}"
    )


def _unplaced(state: SchemaState) -> SchemaError:
    """Say how to give a schema its revision: only its owner knows which one the tables have."""
    what = (
        "the pgtasks schema has tables but no revision (restored without its data?)"
        if state.verdict == "unversioned"
        else f"the pgtasks schema is at the unknown revision {state.revision!r}; known are {', '.join(revisions())}"
    )
    made = f" (a comment says that pgtasks {state.release} made them)" if state.release else ""
    return SchemaError(f"{what}. {_GIVE_REVISION.format(made=made, needed=state.needed)}")


def _require_server(state: SchemaState) -> None:
    if state.server_version < SERVER_VERSION_LEAST:
        found = f"{state.server_version // 10000}.{state.server_version % 10000}"
        raise DatabaseError(f"the server is PostgreSQL {found}, and pgtasks needs 15 or newer; upgrade the server")


def _version() -> str:
    return metadata.version("pgtasks")


# --- Migrating ---


def migrate(
    dsn: str,
    *,
    target: str = "head",
    on_progress: Progress | None = None,
    pooler: str = "none",
    migrator_wait_s: float = MIGRATOR_WAIT_S,
    lock_wait_s: float = LOCK_WAIT_S,
) -> Migrated:
    """Bring the schema up to a revision; any number of processes may do so at once.

    ``on_progress`` gets one line per step. Raises DatabaseUnavailable (unreachable or
    read-only), DatabaseError (refused, or somebody held a lock for all of the waiting time),
    SchemaTooNew, SchemaError (it cannot be told where the schema stands) or ConfigError.
    """
    wanted = _resolve(target)
    report = on_progress or _say_nothing
    with session.connect(dsn, "migrate", pooler=pooler) as guard:
        _refuse_unfit(read(guard))
        with migrating.only_migrator(guard, migrator_wait_s, report):
            # Not through the guard: its transaction would keep a lock on the version table.
            state = check(dsn, pooler=pooler)
            _refuse_unfit(state)
            at, steps = state.revision, _after(state.revision, wanted)
            for step in steps:
                report(f"migrating to {step}: {revisions()[step]}")
                _Step(dsn, pooler, at, step).run(lock_wait_s, report)
                at = step
        if at == head():
            _create_partitions(guard, report)
    return Migrated(tuple(steps), at)


def downgrade(dsn: str, *, target: str = BASE) -> None:
    """Take the schema back to a revision, or remove it with every task in it; for tests."""
    with session.connect(dsn, "migrate") as guard:
        at = read(guard).revision
        with migrating.only_migrator(guard, MIGRATOR_WAIT_S, _say_nothing):
            _Step(dsn, "none", at, target).run(LOCK_WAIT_S, _say_nothing)


def _say_nothing(_message: str) -> None:
    pass


def _refuse_unfit(state: SchemaState) -> None:
    _require_server(state)
    if state.read_only:
        raise DatabaseUnavailable(
            "the server is read-only (a standby, or default_transaction_read_only is on); "
            "give the connection string of the primary",
            sqlstate="25006",
        )
    if state.verdict not in {"current", "missing", "outdated"}:
        require(state)


def _create_partitions(connection: SyncConnection, report: Progress) -> None:
    """Make the coming days' partitions, for a database whose workers start later."""
    try:
        session.fetch_one(connection, statements.create_partitions(_PARTITION_DAYS_AHEAD))
    except DatabaseError as error:
        report(f"the workers will create the partitions of history, it failed here: {error}")


@dataclass(frozen=True, slots=True)
class _Step:
    """One revision, up or down, in one transaction."""

    dsn: str
    pooler: str
    revision: str
    target: str

    def run(self, wait_s: float, report: Progress) -> None:
        """Run it, again and again while somebody is in its way."""
        deadline, pause_s = time.monotonic() + wait_s, 0.25
        while True:
            with migrating.Watcher(self.dsn, self.pooler) as watcher:
                try:
                    return self._run_once(watcher)
                except DatabaseError as error:
                    if not migrating.is_in_the_way(error):
                        raise
                    if time.monotonic() > deadline:
                        raise DatabaseError(
                            f"migrating to {self.target} got no lock within {wait_s:g} s, {watcher.blame(error)}; "
                            "end that session or wait for it, and run: pgtasks migrate",
                            sqlstate=error.sqlstate,
                        ) from error
                    report(f"trying {self.target} again in a moment: {watcher.blame(error)}")
            # Long enough for those who queued up behind the attempt to get their turn.
            time.sleep(pause_s * random.uniform(0.75, 1.25))
            pause_s = min(_RETRY_S_MAX, pause_s * 2)

    def _run_once(self, watcher: migrating.Watcher) -> None:
        import sqlalchemy

        raw = migrating.connect_for_alembic(self.dsn, self.pooler)
        watcher.pid = migrating.backend_pid(raw)
        engine = sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=lambda: raw, poolclass=sqlalchemy.pool.NullPool
        )
        # The raw connection is closed even if SQLAlchemy never asks for it.
        with migrating.translated(self.dsn), raw, engine.connect() as connection, connection.begin():
            _execute(connection, _prologue(self.revision))
            _alembic(self.revision, self.target, connection=connection)
            _execute(connection, _epilogue(self.target))


# --- Alembic ---


def script(from_revision: str = BASE, to: str = "head") -> str:
    """Give the migrations as one transaction of SQL for ``psql -v ON_ERROR_STOP=1``, without a server.

    ``from_revision`` is where the schema stands, "" for none; the script refuses any other one.
    Raises ConfigError for a revision that does not exist.
    """
    start, end = from_revision and _resolve(from_revision), _resolve(to)
    if not _after(start, end):
        raise ConfigError(f"there is nothing between revisions {start} and {end}")
    buffer = io.StringIO()
    _alembic(start, end, output=buffer)
    heading = f"-- pgtasks {_version()}: the schema from revision {start or 'none'} to {end}."
    parts = (
        f"{heading}\n-- Run it with: psql -v ON_ERROR_STOP=1 -f THIS_FILE",
        "BEGIN;",
        _prologue(start).strip(),
        buffer.getvalue().strip(),
        f"{_epilogue(end)};",
        "COMMIT;",
        "SELECT pgtasks.create_partitions();",
    )
    return "\n\n".join(parts) + "\n"


def run_sql_beside(revision_file: str, direction: Literal["up", "down"]) -> None:
    """Run NNNN_name.up.sql or .down.sql beside a revision's file, verbatim; called by revisions."""
    from alembic import op

    text = Path(revision_file).with_suffix(f".{direction}.sql").read_text(encoding="utf-8")
    context = op.get_context()
    if context.as_sql:
        # psql has to see where the last statement ends.
        context.impl.static_output(text if text.rstrip().endswith(";") else f"{text}\n;")
    else:
        _execute(op.get_bind(), text)


def _alembic(revision: str, target: str, *, connection: Any = None, output: io.StringIO | None = None) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(output_buffer=output)
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    if revision < target:
        command.upgrade(config, f"{revision or 'base'}:{target}" if output else target, sql=output is not None)
    else:
        command.downgrade(config, target or "base")


def _execute(connection: Any, text: str) -> None:
    """Run SQL exactly as it is written: no %, no colon and no backslash means anything here."""
    connection.exec_driver_sql(text, execution_options={"no_parameters": True})


def _prologue(revision: str) -> str:
    text = (folder() / "prologue.sql").read_text(encoding="utf-8")
    return f"SET LOCAL pgtasks.migrate_from = '{revision}';\n\n{text}"


def _epilogue(target: str) -> str:
    """Leave a note for older versions, or nothing at all after the last downgrade."""
    table = f"{VERSION_SCHEMA}.{VERSION_TABLE}"
    if target == BASE:
        return f"DROP TABLE {table}; DROP SCHEMA {VERSION_SCHEMA}"
    return f"COMMENT ON TABLE {table} IS '{_version()}'"
