"""`pgtasks grant`: give a role what a producer, worker, reader or admin needs, and no more."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from pgtasks.cli import options
from pgtasks.cli.database import connected
from pgtasks.cli.escape import escape
from pgtasks.cli.output import print_json
from pgtasks.errors import ConfigError
from pgtasks.store import granting
from pgtasks.store.turns import turn

KindArgument = Annotated[
    str,
    typer.Argument(metavar="KIND", help="producer, worker, reader or admin.", show_default=False),
]


def grant(
    kind: KindArgument,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="An existing role.", show_default=False)],
    *,
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Print the statements for a DBA and do nothing; needs no server.")
    ] = False,
    as_json: options.Json = False,
    dsn: options.Dsn = None,
) -> None:
    """Give a role the rights of a producer, a worker, a reader or an admin; safe to run again.

    Run it as the role that owns the schema, and again after an upgrade. docs/roles.md says what each kind may do.
    """
    found = next((one for one in get_args(granting.Kind) if one == kind), None)
    if found is None:
        kinds = ", ".join(granting.KINDS)
        raise ConfigError(f"unknown kind of role {kind!r}{options.did_you_mean(kind, granting.KINDS)} — one of {kinds}")
    name = granting.check_role(role)
    statements = granting.script(found, name)
    if as_sql:
        if as_json:
            raise ConfigError("--sql prints SQL and nothing else; leave out --json")
        typer.echo("".join(f"{statement};\n" for statement in statements), nl=False)
        return
    with connected(dsn) as connection, turn(connection):
        granting.grant(connection, found, name)
    if as_json:
        print_json({"kind": found, "role": name, "statements": statements})
    else:
        typer.echo(f"role {escape(name)} has the rights of a {found} now")
