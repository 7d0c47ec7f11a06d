"""`pgtasks migrate`: bring the schema to what this version needs, or say how it stands."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pgtasks.cli import exits, options
from pgtasks.cli.database import database
from pgtasks.cli.database import pooler as pooler_kind
from pgtasks.errors import ConfigError, PgtasksError


def migrate(
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL for a DBA and do nothing; needs no server.")
    ] = False,
    from_revision: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="REVISION", help="With --sql: where the schema stands.  [default: no schema yet]"
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 5 unless the schema is the one that is needed.")
    ] = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Create or upgrade the pgtasks schema; safe to run any number of times, and at once.

    A DBA's way: pgtasks migrate --sql | psql -v ON_ERROR_STOP=1.
    """
    from pgtasks import schema

    _refuse_mixtures(as_sql=as_sql, check=check, as_json=as_json, from_revision=from_revision)
    if as_sql:
        typer.echo(schema.script(from_revision or schema.BASE), nl=False)
        return
    pooler = pooler_kind()
    with database(dsn) as address:
        if check:
            _tell_state(schema.check(address, pooler=pooler), as_json=as_json)
            return
        done = schema.migrate(address, on_progress=_progress, pooler=pooler)
    if as_json:
        _print({"revision": done.revision, "applied": done.applied})
    elif done.applied:
        typer.echo(f"the schema is at {done.revision} now")
    else:
        typer.echo(f"the schema is already at {done.revision}")


def _refuse_mixtures(*, as_sql: bool, check: bool, as_json: bool, from_revision: str | None) -> None:
    if as_sql and (check or as_json):
        raise ConfigError(f"--sql prints SQL and nothing else; leave out {'--check' if check else '--json'}")
    if from_revision is not None and not as_sql:
        raise ConfigError("--from goes with --sql; without it the database says where it stands")


def _tell_state(state: Any, *, as_json: bool) -> None:
    """Say how the schema stands; raises what ends in exit code 5 when that is not right."""
    from pgtasks import schema

    if not as_json:
        schema.require(state)
        typer.echo(f"the schema is at {state.revision}, as this version needs")
        return
    message = None
    try:
        schema.require(state)
    except PgtasksError as error:
        message = str(error)
        raise typer.Exit(exits.code_of(error)) from error
    finally:
        facts = {"revision": state.revision or None, "needed": state.needed, "verdict": state.verdict}
        _print({**facts, "message": message})


def _progress(line: str) -> None:
    from pgtasks.cli.escape import escape

    typer.echo(escape(line), err=True)


def _print(document: dict[str, Any]) -> None:
    from pgtasks.cli.output import print_json

    print_json(document)
