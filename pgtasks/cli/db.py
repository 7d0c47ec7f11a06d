"""`pgtasks db`: the database that the commands use, the local server above all."""

import json
import os
import shutil
import signal
from collections.abc import Mapping
from typing import Annotated

import typer

from pgtasks import embedded
from pgtasks.cli import options
from pgtasks.cli.database import DSN_VARIABLE, given_dsn
from pgtasks.errors import ConfigError
from pgtasks.store import conninfo

# A person who copies the address into another window needs more time than a script.
URL_LINGER_S = 60.0

# Each of these would send psql somewhere else than the address that we give it.
_MISLEADING = ("PGHOSTADDR", "PGPASSFILE", "PGPASSWORD", "PGSERVICE", "PGSERVICEFILE")

db = typer.Typer(help="Find, open and stop the database that pgtasks uses.", no_args_is_help=True)


@db.command()
def url(
    *,
    show_password: Annotated[
        bool, typer.Option("--show-password", help="Print the password of the connection string as well.")
    ] = False,
    linger: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long the local server waits for somebody to connect.",
        ),
    ] = URL_LINGER_S,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    dsn: options.Dsn = None,
) -> None:
    """Print the address of the database, after starting the local server if it is that one.

    The local server stays for --linger seconds, and after that for as long as somebody is
    connected: psql "$(pgtasks db url)".
    """
    dsn = given_dsn(dsn)
    if dsn is not None:
        facts = _external_facts(dsn, show_password=show_password)
    else:
        with _open_local_server(linger) as lease:
            facts = {
                "dsn": lease.dsn,
                "embedded": True,
                "path": str(lease.state_dir),
                "server_version": lease.server.version,
            }
    typer.echo(json.dumps(facts) if as_json else facts["dsn"])


@db.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    }
)
def psql(context: typer.Context, dsn: options.Dsn = None) -> None:
    """Open psql on the database; all other arguments go to psql, and its exit status comes back.

    For example: pgtasks db psql -c "SELECT * FROM pgtasks.queue_stats". Arguments that this
    command knows itself, such as --help, go to psql after --.
    """
    program = find_psql()
    dsn = given_dsn(dsn)
    if dsn is not None:
        argv, environment = external_psql(dsn)
    else:
        lease = _open_local_server(embedded.LINGER_S)
        typer.echo(f"{DSN_VARIABLE} is not set: using the local PostgreSQL in {lease.state_dir}", err=True)
        # psql takes the place of this process and holds the lease until it ends.
        lease.keep_across_exec()
        argv, environment = [], _local_environment(lease.server)
    # Python ignores this signal and `exec` would hand that on; psql is to end with its reader.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(program, ["psql", *argv, *context.args], environment)  # noqa: S606 - no shell wanted


@db.command()
def path(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the folder that holds the local server's data and logs; other servers have none here."""
    _require_local()
    folder = embedded.state_folder()
    running = embedded.is_running(folder)
    typer.echo(json.dumps({"path": str(folder), "running": running}) if as_json else str(folder))


@db.command()
def stop(
    force: Annotated[bool, typer.Option("--force", help="Disconnect the programs that use the server.")] = False,
) -> None:
    """Stop the local server now instead of after its last user."""
    _require_local()
    stopped = embedded.stop_server(force=force)
    typer.echo("The local server is stopped." if stopped else "No local server is running.")


def _open_local_server(linger_s: float) -> embedded.Lease:
    if not embedded.is_available():
        raise ConfigError(
            f"no database — set {DSN_VARIABLE} to a PostgreSQL connection string, "
            "or get a local server with: pip install 'pgtasks[embedded]'"
        )
    return embedded.open_server(linger_s=linger_s)


def _require_local() -> None:
    dsn = given_dsn(None)
    if dsn is not None:
        raise ConfigError(
            f"{DSN_VARIABLE} is set, so pgtasks uses the database of {conninfo.redacted(dsn)}, "
            f"which it does not manage. Unset {DSN_VARIABLE} to use the local server."
        )


def _external_facts(dsn: str, *, show_password: bool) -> dict[str, object]:
    return {"dsn": dsn if show_password else conninfo.redacted(dsn), "embedded": False}


def find_psql() -> str:
    """Give the psql that came with the local server, else the one on the PATH; raises ConfigError."""
    if embedded.is_available():
        packaged = embedded.find_binaries().program("psql")
        if os.access(packaged, os.X_OK):
            return str(packaged)
    found = shutil.which("psql")
    if found is None:
        raise ConfigError(
            "There is no psql. Install PostgreSQL's client programs (Debian: postgresql-client, "
            "macOS: libpq), or pip install 'pgtasks[embedded]', which brings one."
        )
    return found


def external_psql(dsn: str) -> tuple[list[str], dict[str, str]]:
    """Arguments for psql, without the password because `ps` shows them, and its environment."""
    parameters = conninfo.parse(dsn)
    if "sslpassword" in parameters:
        raise ConfigError(
            "psql would show the sslpassword of the connection string in the list of processes. "
            "Remove it there; psql then asks for it."
        )
    environment = dict(os.environ)
    password = parameters.pop("password", None)
    if password is not None:
        environment["PGPASSWORD"] = password
    environment.pop(DSN_VARIABLE, None)
    return ["--dbname", _keywords_and_values(parameters)], environment


def _keywords_and_values(parameters: Mapping[str, str]) -> str:
    def quote(value: str) -> str:
        return "'" + value.replace("\\", r"\\").replace("'", r"\'") + "'"

    return " ".join(f"{name}={quote(value)}" for name, value in parameters.items())


def _local_environment(server: embedded.RunningServer) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return kept | {
        "PGHOST": server.socket_dir,
        "PGPORT": str(server.port),
        "PGUSER": embedded.ROLE,
        "PGDATABASE": embedded.DATABASE,
    }
